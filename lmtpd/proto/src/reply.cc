#include "twinloft/lmtpd/proto/reply.h"

#include <fmt/format.h>

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

// Does not use a format string, because parsing it for every reply takes time.
void append_reply(std::string& out, int code, std::string_view enhanced, std::string_view text) {
  const std::size_t begin = out.size();
  const fmt::format_int digits(code);
  out.append(digits.data(), digits.size()) += ' ';
  if (!enhanced.empty()) out.append(enhanced) += ' ';
  out += text;
  clean(std::span(out).subspan(begin));
  if (out.size() - begin > reply_line_bytes_max - 2) out.resize(begin + reply_line_bytes_max - 2);
  out += "\r\n";
}
void append_reply(std::string& out, const Reply& reply) {
  append_reply(out, reply.code, reply.enhanced, reply.text);
}

void append_reply_lines(std::string& out, int code, const std::vector<std::string>& lines) {
  for (auto line = lines.begin(); line != lines.end(); ++line)
    fmt::format_to(std::back_inserter(out), "{}{}{}\r\n", code, line + 1 == lines.end() ? ' ' : '-',
                   cleaned(*line));
}

}  // namespace twinloft::lmtpd
