// A connected or connecting stream socket, TCP or Unix. In clear text, unless the kernel encrypts.
#pragma once

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/ports/loop.h"
#include "twinloft/spool-repl/stream/stream.h"

namespace twinloft::repl::stream {

class SocketStream final : public Stream {
 public:
  enum class Begin { open, connecting };  // connecting: connect(2) has not completed
  // keep: close() only closes the descriptor. cut: close() shuts both directions first, for a socket that the
  // loop may hold one turn longer.
  enum class AtClose { keep, cut };

  // socket: non-blocking, with its options set by the caller.
  SocketStream(ports::Loop& loop, Fd socket, Begin begin = Begin::open, AtClose at_close = AtClose::keep);
  ~SocketStream() override;

  void start(unsigned interest, Events events) override;
  State state() const override { return state_; }
  void want(unsigned interest) override;
  void set_events(Events events) override { events_ = std::move(events); }
  Result<Got> read(std::span<const iovec> into) override;
  Result<std::size_t> write(std::span<iovec> from) override;
  void end_output() override;
  void close() override;
  bool is_stuck() const override;
  std::optional<LineState> line() const override;
  // By the kernel, for TCP, if it can also change the key (kernel_tls.h).
  bool seal_output(const RecordKey& key) override;
  Result<bool> write_record(std::uint8_t type, std::span<const std::byte> content) override;

 private:
  void on_ready(unsigned ready);
  void on_connected();
  void watch(unsigned interest);

  ports::Loop& loop_;
  Fd fd_;
  State state_;
  AtClose at_close_;
  unsigned wanted_ = 0;
  unsigned watched_ = 0;  // the interest of the loop's watch
  Events events_;
};

}  // namespace twinloft::repl::stream
