// A volume in memory that keeps its content. The test completes requests one by one, or all complete at once.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <vector>

#include "twinloft/spool-repl/ports/block_target.h"

namespace twinloft::repl::exports {

class ManualTarget : public ports::BlockTarget {
 public:
  explicit ManualTarget(std::size_t size, bool completes_at_once)
      : bytes(size), immediate(completes_at_once) {}

  std::uint64_t size_bytes() const override { return bytes.size(); }
  void submit(ports::IoRequest& r) override {
    EXPECT_LE(r.offset + r.length, bytes.size());
    seen.push_back(r);
    if (immediate) return complete(r, 0);
    waiting.push_back(&r);
  }
  void complete(ports::IoRequest& r, int error) {
    std::byte* at = bytes.data() + r.offset;
    if (error == 0 && r.op == ports::IoOp::write) std::memcpy(at, r.data, r.length);
    if (error == 0 && r.op == ports::IoOp::read) std::memcpy(r.data, at, r.length);
    if (error == 0 && (r.op == ports::IoOp::trim || r.op == ports::IoOp::write_zeroes))
      std::memset(at, 0, r.length);
    r.error = error;
    r.done(r);
  }
  // Completes the first waiting request, or the last.
  void complete_first(int error = 0) {
    auto* r = waiting.front();
    waiting.pop_front();
    complete(*r, error);
  }
  void complete_last(int error = 0) {
    auto* r = waiting.back();
    waiting.pop_back();
    complete(*r, error);
  }

  std::vector<std::byte> bytes;
  std::deque<ports::IoRequest*> waiting;
  std::vector<ports::IoRequest> seen;  // copies, in order of arrival
  bool immediate;
};

}  // namespace twinloft::repl::exports
