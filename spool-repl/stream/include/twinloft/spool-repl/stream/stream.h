// A stream of bytes to another process, below the protocol of a connection.
//
//   opening -> open -> closed
//
// The connection frames messages, and does not use descriptors. The stream may be a socket, TLS over a
// socket, or compression over either. Opening is everything before the first byte of the protocol:
// connect(2), and the handshake of TLS.
//
// All calls are on the loop's thread. The connection owns its stream.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/stream/record_key.h"

namespace twinloft::repl::stream {

class Stream {
 public:
  enum class State { opening, open, closed };
  enum Interest : unsigned { readable = 1, writable = 2 };
  struct Events {
    // Called once, at the end of `opening`, with success or the error. After an error, the owner calls
    // close(). A stream that is open at start() does not call it.
    std::function<void(Status)> opened;
    // Called while open, with the ready Interest, also after an error or a hang-up, which read() and write()
    // then report. Level-triggered: a stream with decoded bytes calls again. The owner may call close()
    // within.
    std::function<void(unsigned ready)> ready;
  };
  struct LineState {
    Duration round_trip{};
    std::uint64_t queued_bytes = 0;  // accepted, and not acknowledged by the other machine
    std::uint64_t window_bytes = 0;  // that may be on their way at a time, by congestion control
  };
  struct Got {
    std::size_t bytes = 0;  // 0 and not ended: no bytes at present
    bool ended = false;     // the other side has ended its output
  };

  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Starts the stream, once. interest: of the owner, while the stream is open. The stream itself watches for
  // its own needs, such as room for its output while the owner only reads.
  virtual void start(unsigned interest, Events events) = 0;
  virtual State state() const = 0;
  virtual void want(unsigned interest) = 0;
  // Another owner. Call it in no event of this stream.
  virtual void set_events(Events events) = 0;

  // Reads available bytes into the spans in order, with at most one system call. Errors: only the reason
  // ("Connection reset by peer"); the owner adds the name of the other side.
  virtual Result<Got> read(std::span<const iovec> into) = 0;
  // Returns the number of accepted bytes. Fewer than given: the stream is full, and reports `writable` when
  // it has room, if the owner wants that. Accepted bytes are sent without another call, and their memory may
  // be reused. The stream may change `from`.
  virtual Result<std::size_t> write(std::span<iovec> from) = 0;
  // The other side reads the end of the stream after all accepted bytes. Then `writable` is reported once
  // more, if the stream has had to wait.
  virtual void end_output() = 0;
  // Ends the stream, without further events. Bytes that the system has accepted are still sent, as far as
  // possible.
  virtual void close() = 0;
  // Whether the system retransmits without an acknowledgement.
  virtual bool is_stuck() const = 0;
  // Whether accepted bytes are still in this process. close() would lose them.
  virtual bool has_unsent() const { return false; }
  // What the system knows of the line below. Nothing: there is none, or it does not say.
  virtual std::optional<LineState> line() const { return std::nullopt; }

  // What is written from now on is the content of TLS records with this key, which the stream makes. Again
  // after a KeyUpdate. False: this stream cannot do that, and nothing has changed. From then on, close() may
  // lose accepted bytes while the line is full.
  virtual bool seal_output(const RecordKey&) { return false; }
  // After seal_output(): one record of another type (RFC 8446, 5.1), whole. False: there is no room, and the
  // stream reports `writable` when there is, if the owner wants that.
  virtual Result<bool> write_record(std::uint8_t, std::span<const std::byte>) {
    return fail(Errc::internal, "this stream makes no records");
  }

 protected:
  Stream() = default;
};

}  // namespace twinloft::repl::stream
