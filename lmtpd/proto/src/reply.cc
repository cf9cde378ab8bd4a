#include "twinloft/lmtpd/proto/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t around_text = 3 + 1 + 12 + 2;  // code, blank, enhanced code with its blank, CRLF

void clean(std::span<char> text) {
  for (char& c : text) {
    if (c == '\t') c = ' ';
    if (c < 32 || c > 126) c = '?';
  }
}

std::string cleaned(std::string_view text) {
  std::string out(text.substr(0, reply_line_bytes_max - around_text));
  clean(out);
  return out;
}

}  // namespace

Reply make_reply(int code, std::string_view enhanced, std::string_view text) {
  return {code, std::string(enhanced), cleaned(text)};
}

Reply make_reply_of_lines(int code, std::string_view enhanced, const std::vector<std::string>& lines) {
  Reply out{code, std::string(enhanced), lines.empty() ? "" : cleaned(lines.front())};
  for (std::size_t i = 1; i < std::min(lines.size(), reply_lines_max); ++i)
    out.further.push_back(cleaned(lines[i]));
  return out;
}

namespace {

// Does not use a format string, because parsing it for every reply takes time. separator: '-' if another line
// of the reply follows.
void append_line(std::string& out, int code, char separator, std::string_view enhanced,
                 std::string_view text) {
  const std::size_t begin = out.size();
  const fmt::format_int digits(code);
  out.append(digits.data(), digits.size()) += separator;
  if (!enhanced.empty()) out.append(enhanced) += ' ';
  out += text;
  clean(std::span(out).subspan(begin));
  if (out.size() - begin > reply_line_bytes_max - 2) out.resize(begin + reply_line_bytes_max - 2);
  out += "\r\n";
}

}  // namespace

void append_reply(std::string& out, int code, std::string_view enhanced, std::string_view text) {
  append_line(out, code, ' ', enhanced, text);
}
void append_reply(std::string& out, const Reply& reply) {
  const std::size_t more = reply.further.size();
  append_line(out, reply.code, more > 0 ? '-' : ' ', reply.enhanced, reply.text);
  for (std::size_t i = 0; i < more; ++i)
    append_line(out, reply.code, i + 1 < more ? '-' : ' ', reply.enhanced, reply.further[i]);
}

void append_reply_lines(std::string& out, int code, const std::vector<std::string>& lines) {
  for (auto line = lines.begin(); line != lines.end(); ++line)
    fmt::format_to(std::back_inserter(out), "{}{}{}\r\n", code, line + 1 == lines.end() ? ' ' : '-',
                   cleaned(*line));
}

}  // namespace twinloft::lmtpd
