#include "twinloft/base/log.h"

#include <atomic>

#include "log_sink.h"
#include "twinloft/base/utf8.h"

namespace twinloft {

namespace {
std::string g_program = "twinloft";
std::atomic<LogLevel> g_level{LogLevel::info};

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "unknown";
}

// The length of the first character, if it may be part of a line unchanged. 0: a control character, or not
// UTF-8.
std::size_t printable_length(std::string_view text) {
  std::size_t length = utf8_length(text);
  bool control = static_cast<unsigned char>(text[0]) < 0x20 || text[0] == 0x7f ||
                 (length == 2 && !is_clean_utf8(text.substr(0, 2)));
  return control ? 0 : length;
}

// Which characters append_escaped() marks with a backslash.
enum class Mark { none, quotes };

bool is_plain(char c, Mark mark) {
  return c >= 0x20 && c < 0x7f && (mark == Mark::none || (c != '"' && c != '\\'));
}

// Most values are plain ASCII, which is copied whole.
void append_escaped(std::string& out, std::string_view value, Mark mark) {
  while (!value.empty()) {
    std::size_t length = 0;
    while (length < value.size() && is_plain(value[length], mark)) ++length;
    out.append(value.substr(0, length));
    value.remove_prefix(length);
    if (value.empty()) return;
    length = printable_length(value);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(value[0]));
      length = 1;
    } else {
      if (length == 1) out += '\\';
      out += value.substr(0, length);
    }
    value.remove_prefix(length);
  }
}

void append_quoted(std::string& out, std::string_view value) {
  out += '"';
  append_escaped(out, value, Mark::quotes);
  out += '"';
}

std::string line_of(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  std::size_t bytes = g_program.size() + message.size() + 32;
  for (const LogField& field : fields) bytes += field.key.size() + field.value.size() + 4;
  std::string line;
  line.reserve(bytes);
  if (g_program.empty()) {
    line.append(name_of(level)).append(": ");
    append_escaped(line, message, Mark::none);
  } else {
    line.append("level=").append(name_of(level)).append(" prog=").append(g_program).append(" msg=");
    append_quoted(line, message);
  }
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
  return line_of(LogLevel::warning, "log lines are missing here: the log's reader was too slow",
                 {{"lines", std::to_string(count)}});
}
}  // namespace

void log_set_program(std::string_view name) {
  g_program = name;
}
void log_set_level(LogLevel lowest_shown) {
  g_level = lowest_shown;
}
bool log_shows(LogLevel level) {
  return level >= g_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  if (log_shows(level)) sink_line(line_of(level, message, fields), missing_lines);
}

}  // namespace twinloft
