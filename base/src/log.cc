#include "twinloft/base/log.h"

#include <atomic>

#include "log_sink.h"

namespace twinloft {

namespace {
std::string g_program = "twinloft";
std::atomic<LogLevel> g_level{LogLevel::info};

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
  }
  return "unknown";
}

void append_escaped(std::string& out, std::string_view value, std::string_view special) {
  for (unsigned char c : value) {
    if (special.find(static_cast<char>(c)) != special.npos) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
}

void append_quoted(std::string& out, std::string_view value) {
  out += '"';
  append_escaped(out, value, "\"\\");
  out += '"';
}

std::string line_of(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  std::string line = g_program.empty() ? fmt::format("{}: ", name_of(level)) : fmt::format("level={} prog={} msg=", name_of(level), g_program);
  if (g_program.empty()) append_escaped(line, message, "");
  else append_quoted(line, message);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_quoted(line, field.value);
  }
  line += '\n';
  return line;
}

std::string missing_lines(unsigned long count) {
  return line_of(LogLevel::warning, "log lines are missing here: the log's reader was too slow", {{"lines", std::to_string(count)}});
}
}  // namespace

void log_set_program(std::string_view name) { g_program = name; }
void log_set_level(LogLevel lowest_shown) { g_level = lowest_shown; }
bool log_shows(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  if (log_shows(level)) sink_line(line_of(level, message, fields), missing_lines);
}

}  // namespace twinloft
