// A stream of bytes to one other process, below a connection's protocol.
//
//   opening -> open -> closed
//
// The connection above frames messages, and knows nothing of descriptors. What lies below may be a socket,
// TLS over a socket, or compression over either. Opening is all that such a stream needs before the first
// byte of the protocol: connect(), and the handshake of TLS.
//
// Everything happens on the loop's thread. The connection owns its stream.
#pragma once

#include <sys/uio.h>

#include <functional>
#include <span>

#include "twinloft/base/result.h"

namespace twinloft::repl::stream {

class Stream {
 public:
  enum class State { opening, open, closed };
  enum Interest : unsigned { readable = 1, writable = 2 };
  struct Events {
    // The end of `opening`, once: open now, or why not. After an error the owner calls close(). A stream that
    // was open when it was started does not call it.
    std::function<void(Status)> opened;
    // While open: what is ready, also after an error or a hang-up, which read() and write() then report.
    // Level-triggered: a stream that holds decoded bytes calls again by itself. The owner may close() within.
    std::function<void(unsigned ready)> ready;
  };
  struct Got {
    std::size_t bytes = 0;  // 0 and not ended: nothing now
    bool ended = false;     // the other side sends nothing more
  };

  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Once. `interest`: what the owner wants to be called for while the stream is open. The stream watches by
  // itself for what it needs, such as room for its own output while the owner only reads.
  virtual void start(unsigned interest, Events events) = 0;
  virtual State state() const = 0;
  virtual void want(unsigned interest) = 0;

  // At most one system call: what there is, into the spans in order. The error is the reason alone
  // ("Connection reset by peer"): the owner adds whom it talks to.
  virtual Result<Got> read(std::span<const iovec> into) = 0;
  // How many bytes were taken. Fewer than given: the stream is full, and says `writable` when there is room,
  // if that is wanted. What was taken is on its way without another call, and its memory is the owner's
  // again. The stream may change `from`.
  virtual Result<std::size_t> write(std::span<iovec> from) = 0;
  virtual void end_output() = 0;  // the other side reads an end behind what was taken
  // No events come afterwards. What the system below has taken is still sent, as far as the other side takes
  // it.
  virtual void close() = 0;
  // In the system's view: it sends the same again and again, and nobody acknowledges it.
  virtual bool is_stuck() const = 0;

 protected:
  Stream() = default;
};

}  // namespace twinloft::repl::stream
