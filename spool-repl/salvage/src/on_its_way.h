// Which of the messages of before the parting may have been acknowledged after it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/salvage/file_ops.h"

namespace twinloft::repl::salvage {

struct Times {
  FileTime modified, changed, born;
};

// The kernel stamps files by a clock that is a few milliseconds behind.
inline constexpr std::int64_t clock_slack_s = 1;

// The newest birth that is not behind the first change after the parting: a user can make a file of old blocks at any time
// (reflink), and must not hide by it what was on its way. Where all are behind, the clock was set, and the newest has to do.
inline std::optional<std::int64_t> newest_birth(const std::vector<std::int64_t>& births_s, const std::optional<WallTime>& first_after) {
  std::optional<std::int64_t> newest;
  for (std::int64_t born : births_s)
    if (!first_after || born <= first_after->seconds) newest = std::max(newest.value_or(born), born);
  if (newest || births_s.empty()) return newest;
  return *std::max_element(births_s.begin(), births_s.end());
}

// A message is stored in tmp/, made durable, renamed into new/, and acknowledged. So one whose content is of before the
// parting and whose acknowledgement is not was born shortly before `newest_before_s`, the birth of the newest message of
// before the parting (or is that one), and was renamed, which its change tells, after it. What was acknowledged before the
// parting was renamed before it too: most of it has an older change.
inline bool may_have_been_on_its_way(const Times& message, std::int64_t newest_before_s, std::chrono::seconds window) {
  return message.born.seconds >= newest_before_s - window.count() &&
         message.changed.seconds >= newest_before_s - clock_slack_s;
}

}  // namespace twinloft::repl::salvage
