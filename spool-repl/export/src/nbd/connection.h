// An NBD client: its stream, its requests in flight, and its replies.
//
//   negotiating -> serving -> draining -> closed
//        \________________________________^
//
// Draining: no more requests are read, since the client has disconnected, its input has ended, or the server
// stops. Requests at the target are completed, and answered while the client reads. A closed connection is
// destroyed once the target has completed its last request.
#pragma once

#include <sys/uio.h>

#include <array>
#include <deque>
#include <span>

#include "twinloft/spool-repl/export/nbd_server.h"
#include "twinloft/spool-repl/stream/stream.h"
#include "twinloft/spool-repl/stream/tls_stream.h"

namespace twinloft::repl::nbd {

class Connection {
 public:
  Connection(Server& server, std::unique_ptr<stream::Stream> stream);
  // The client must ask for TLS. stream: in clear text, until secure() is called.
  Connection(Server& server, std::unique_ptr<stream::TlsStream> stream);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  void flush();  // sends what is ready
  void stop();
  void close();
  bool is_closed() const { return phase_ == Phase::closed; }
  unsigned in_target() const { return in_target_; }

  std::string address;  // for the server: of the client; empty for a Unix socket
  bool dirty = false;   // for the server: the connection is in the list for the next flush

 private:
  enum class Phase { negotiating, serving, draining, closed };

  static constexpr std::size_t max_parts = max_payload_bytes / ports::io_max_length;
  struct Part {
    ports::IoRequest io;
    exports::Buffer buffer;
  };
  // A request, from the arrival of its header until its reply is sent.
  struct Slot {
    Connection* connection = nullptr;
    Request request;
    std::array<Part, max_parts> parts;
    unsigned part_count = 0;
    unsigned parts_left = 0;       // at the target
    std::uint32_t data_bytes = 0;  // its part of the connection's data_bytes_
    int error = 0;
    WireError refused = WireError::none;
    bool flush_after = false;
    ReplyHeader header;
  };

  void begin_tls();
  void on_opened(Status opened);
  void on_ready(unsigned ready);
  void on_readable();
  bool read_some();  // false: read no more in this turn
  std::uint32_t add_payload_buffers(iovec* iov, std::size_t& count) const;
  void on_input(ByteSpan in);
  void on_end_of_input();
  void negotiate(ByteSpan& in);
  void begin_serving();
  void serve(ByteSpan in);
  bool admit();  // false: there is no room for the present request
  void on_payload(ByteSpan piece);
  void copy_payload(Slot& slot, std::uint32_t at, ByteSpan piece);
  void resume();

  bool take_buffers(Slot& slot);
  void submit(Slot& slot);
  void submit_part(Slot& slot, Part& part);
  static void on_io_done(ports::IoRequest& io);
  void on_parts_done(Slot& slot);
  void complete(Slot& slot, WireError error);
  void release(Slot& slot);

  std::size_t gather_output(std::span<iovec> out) const;
  void sent(std::size_t bytes);
  bool output_pending() const { return !control_out_.empty() || !replies_.empty(); }
  void after_output();
  void update_interest();
  void protocol_error(std::string_view why);

  Server& server_;
  std::unique_ptr<stream::Stream> stream_;
  stream::TlsStream* tls_ = nullptr;  // the same
  Phase phase_ = Phase::negotiating;
  bool input_ended_ = false;
  bool output_blocked_ = false;
  bool write_side_shut_ = false;
  ports::Loop::TimerId handshake_timer_ = 0;

  Handshake handshake_;
  std::vector<std::byte> control_out_;

  RequestReader reader_;
  bool paused_ = false;            // reader_.request() waits for room
  Slot* receiving_ = nullptr;      // the write whose payload is arriving
  std::vector<std::byte> input_;   // the buffer of read()
  std::vector<std::byte> unread_;  // the input after a request that waits for room

  std::vector<Slot> slots_;
  std::vector<Slot*> free_slots_;
  std::size_t data_bytes_ = 0;
  unsigned in_target_ = 0;  // IoRequests that the target holds
  std::deque<Slot*> replies_;
  std::size_t out_sent_ = 0;  // the sent bytes of control_out_, or else of the first reply
};

}  // namespace twinloft::repl::nbd
