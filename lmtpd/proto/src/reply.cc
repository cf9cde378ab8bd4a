#include "twinloft/lmtpd/proto/reply.h"

#include <fmt/format.h>

#include <iterator>

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t around_text = 3 + 1 + 12 + 2;  // code, blank, enhanced code with its blank, CRLF

std::string cleaned(std::string_view text) {
  std::string out(text.substr(0, reply_line_bytes_max - around_text));
  for (char& c : out) {
    if (c == '\t') c = ' ';
    if (c < 32 || c > 126) c = '?';
  }
  return out;
}

}  // namespace

Reply make_reply(int code, std::string_view enhanced, std::string_view text) {
  return {code, std::string(enhanced), cleaned(text)};
}

void append_reply(std::string& out, const Reply& reply) {
  std::size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{} {}{}{}", reply.code, reply.enhanced,
                 reply.enhanced.empty() ? "" : " ", reply.text);
  // Most replies are clean. Only the others are copied.
  for (std::size_t i = begin; i < out.size(); ++i)
    if (out[i] < 32 || out[i] > 126) out[i] = '?';
  if (out.size() - begin > reply_line_bytes_max - 2) out.resize(begin + reply_line_bytes_max - 2);
  out += "\r\n";
}

void append_reply_lines(std::string& out, int code, const std::vector<std::string>& lines) {
  for (auto line = lines.begin(); line != lines.end(); ++line)
    fmt::format_to(std::back_inserter(out), "{}{}{}\r\n", code, line + 1 == lines.end() ? ' ' : '-',
                   cleaned(*line));
}

}  // namespace twinloft::lmtpd
