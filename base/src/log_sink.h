// Where log lines go: to standard error at once, or to the thread that writes them. Shared by log.cc and
// check.cc.
#pragma once

#include <string>
#include <string_view>

namespace twinloft {

// `notice` makes the line that says how many lines are missing.
void sink_line(std::string line, std::string (*notice)(unsigned long missing));

// Writes to standard error what it takes within `wait_ms`, without waiting longer for its reader. False: not
// all of it.
bool write_within(std::string_view text, int wait_ms);

}  // namespace twinloft
