// Which of the messages of before the parting may have been acknowledged after it.
#pragma once

#include <chrono>

#include "twinloft/spool-repl/salvage/file_ops.h"

namespace twinloft::repl::salvage {

struct Times {
  FileTime modified, changed, born;
};

// The kernel stamps files by a clock that is a few milliseconds behind.
inline constexpr std::int64_t clock_slack_s = 1;

// A message is stored in tmp/, made durable, renamed into new/, and acknowledged. So one whose content is of before the
// parting and whose acknowledgement is not was born shortly before `newest_before`, the birth of the newest message of
// before the parting (or is that one), and was renamed, which its change tells, after it. What was acknowledged before the
// parting was renamed before it too: most of it has an older change.
inline bool may_have_been_on_its_way(const Times& message, FileTime newest_before, std::chrono::seconds window) {
  return message.born.seconds >= newest_before.seconds - window.count() &&
         message.changed.seconds >= newest_before.seconds - clock_slack_s;
}

}  // namespace twinloft::repl::salvage
