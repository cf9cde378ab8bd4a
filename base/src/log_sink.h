// Where log lines go: to standard error at once, or to the thread that writes them. Shared by log.cc and
// check.cc.
#pragma once

#include <string>
#include <string_view>

namespace twinloft {

// notice: makes the line that reports the number of missing lines.
void sink_line(std::string line, std::string (*notice)(unsigned long missing));

// Writes to standard error. Each wait for the reader lasts at most `wait_ms`. False: a part was not written.
// True also after an error that would occur again.
bool write_within(std::string_view text, int wait_ms);

}  // namespace twinloft
