// Log lines in logfmt on standard error: `level=info prog=lmtpd msg="..." key=value`.
//
// A line is one write(2), so lines of several threads and processes do not mix. Values are quoted and control
// bytes escaped: what a peer sent can not forge a line. Never call this on the block I/O path.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace twinloft {

enum class LogLevel { debug, info, warning, error };

struct LogField {
  std::string_view key;
  std::string value;
};

void log_set_program(std::string_view name);  // empty: lines are for a person at a terminal, "warning: ..."
void log_set_level(LogLevel lowest_shown);
bool log_shows(LogLevel level);
void log_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

template <class... Args>
void log_info(fmt::format_string<Args...> f, Args&&... args) {
  if (log_shows(LogLevel::info)) log_line(LogLevel::info, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> f, Args&&... args) {
  if (log_shows(LogLevel::warning)) log_line(LogLevel::warning, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> f, Args&&... args) {
  log_line(LogLevel::error, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> f, Args&&... args) {
  if (log_shows(LogLevel::debug)) log_line(LogLevel::debug, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace twinloft
