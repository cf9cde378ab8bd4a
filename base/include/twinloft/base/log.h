// Log lines in logfmt on standard error: `level=info prog=lmtpd msg="..." key=value`.
//
// A line is one write(2), so lines of several threads and processes do not mix. Values are quoted and control
// bytes are escaped, so bytes of a peer cannot forge a line. The threads of a service do not wait for the
// log's reader (a terminal, a pipe, the journal): see LogWriter and log_never_wait(). Without them, a line is
// written at once, and the caller waits for the reader.
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

void log_set_program(std::string_view name);  // empty: lines for a terminal, "warning: ..."
void log_set_level(LogLevel lowest_shown);
bool log_shows(LogLevel level);
void log_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

// In this process and its forks, drops each line for which the reader has no room now. Before the next
// written line, another line reports the number of dropped lines.
void log_never_wait();

inline constexpr std::size_t log_queue_bytes_max = 1u << 20;  // of waiting lines; further lines are dropped
                                                              // and counted

// While it exists, a separate thread writes this process's lines, in their order. At most one object exists.
// A forked process does not have the thread, and its log behaves as after log_never_wait(). The destructor
// waits at most two seconds for the remaining lines.
class LogWriter {
 public:
  LogWriter();
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;
};

// Call it before _exit() and abort(): waits until the writer's thread has written its lines, at most two
// seconds. Takes no lock.
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
