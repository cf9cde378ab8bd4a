// The requests of the front ends in the core, and the wait of the oldest.
#pragma once

#include <functional>

#include "twinloft/spool-repl/core/effects.h"
#include "twinloft/spool-repl/ports/block_target.h"
#include "twinloft/spool-repl/ports/loop.h"
#include "wait_meter.h"

namespace twinloft::repl::daemon {

class ClientRequests final : public ports::BlockTarget {
 public:
  using Step = std::function<void(core::Event&&)>;
  ClientRequests(const ports::Loop& loop, std::uint64_t size_bytes, Step step)
      : loop_(loop), size_bytes_(size_bytes), step_(std::move(step)) {}

  std::uint64_t size_bytes() const override { return size_bytes_; }
  void submit(ports::IoRequest& r) override {
    waits_.begin(r, loop_.now());
    step_(core::ClientRequest{static_cast<core::ClientOp>(r.op), r.fua, r.offset, r.length, r.data,
                              reinterpret_cast<std::uint64_t>(&r)});
  }
  // Flushes all submitted writes, for the volume itself. `done` is called also after an error. One flush at
  // a time.
  void flush(std::function<void()> done) {
    flushed_ = std::move(done);
    step_(core::ClientRequest{core::ClientOp::flush, false, 0, 0, nullptr, own_flush});
  }
  void complete(const core::Complete& c) {
    if (c.id == own_flush) return flushed_();
    auto* request = reinterpret_cast<ports::IoRequest*>(c.id);
    waits_.end(*request);
    request->error = c.error;
    request->done(*request);
  }
  Duration oldest_wait() const { return waits_.oldest(loop_.now()); }

 private:
  static constexpr std::uint64_t own_flush = 0;  // not the address of a request

  const ports::Loop& loop_;
  std::uint64_t size_bytes_;
  Step step_;
  std::function<void()> flushed_;
  WaitMeter waits_;
};

}  // namespace twinloft::repl::daemon
