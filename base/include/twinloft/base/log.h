// Log lines in logfmt on standard error: `level=info prog=lmtpd msg="..." key=value`.
//
// A line is one write(2), so lines of several threads and processes do not mix. Values are quoted and control
// bytes escaped: what a peer sent cannot forge a line. In a service no thread waits for the log's reader (a
// terminal, a pipe, the journal): see LogWriter and log_never_wait(). Without them a line is written at once,
// and waits.
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

// For this process, and for those that it forks: a line that the reader does not take at once is dropped. The
// next line that is taken stands behind a line that says how many are missing.
void log_never_wait();

inline constexpr std::size_t log_queue_bytes_max = 1u << 20;  // that wait for the writer; what comes then is
                                                              // dropped and counted

// While it lives, lines of this process are written by a thread of its own, in their order. One at a time. A
// forked process has no such thread: there it is as after log_never_wait(). The destructor gives what waits a
// few seconds to get out.
class LogWriter {
 public:
  LogWriter();
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;
};

// Before _exit() and abort(): waits until the writer's thread has written what it has, at most two seconds.
// Takes no lock.
void log_settle();

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
