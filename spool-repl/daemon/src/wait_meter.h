// How long the oldest request of the front ends has waited, to a tenth of a second. Nothing is allocated per
// request.
#pragma once

#include <cstdint>
#include <deque>

#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/ports/block_target.h"

namespace twinloft::repl::daemon {

class WaitMeter {
 public:
  void begin(ports::IoRequest& r, Instant now) {
    if (groups_.empty() || now - groups_.back().since >= group_time) groups_.push_back({now, 0});
    ++groups_.back().waiting;
    r.tag = first_ + groups_.size() - 1;
  }
  void end(const ports::IoRequest& r) {
    --groups_[r.tag - first_].waiting;
    for (; !groups_.empty() && groups_.front().waiting == 0; ++first_) groups_.pop_front();
  }
  Duration oldest(Instant now) const { return groups_.empty() ? Duration(0) : now - groups_.front().since; }

 private:
  static constexpr Duration group_time = std::chrono::milliseconds(100);
  struct Group {  // requests that arrived within group_time
    Instant since;
    std::uint64_t waiting;
  };
  std::deque<Group> groups_;  // the first group is not empty
  std::uint64_t first_ = 0;   // the number of the first group
};

}  // namespace twinloft::repl::daemon
