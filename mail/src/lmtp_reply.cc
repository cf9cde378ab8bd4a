#include "twinloft/mail/lmtp_reply.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace twinloft::mail {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The begin of the input, in a form for messages.
std::string shown(std::string_view line) {
  constexpr std::size_t shown_max = 80;
  std::string out(line.substr(0, shown_max));
  std::ranges::replace_if(out, [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return out;
}

}  // namespace

std::string LmtpReply::text() const {
  return fmt::format("{} {}", code, fmt::join(lines, " / "));
}

Status LmtpReplyParser::take_line(std::string_view line, bool& complete) {
  bool has_code = line.size() >= 3 && line[0] >= '2' && line[0] <= '5' && is_digit(line[1]) &&
                  is_digit(line[2]);
  if (!has_code || (line.size() > 3 && line[3] != ' ' && line[3] != '-'))
    return fail(Errc::corrupt, "\"{}\" is not a reply", shown(line));
  int code = (line[0] - '0') * 100 + (line[1] - '0') * 10 + (line[2] - '0');
  if (!reply_.lines.empty() && reply_.code != code)
    return fail(Errc::corrupt, "a reply whose lines have the codes {} and {}", reply_.code, code);
  if (reply_.lines.size() == lines_max)
    return fail(Errc::corrupt, "a reply of more than {} lines", lines_max);
  if ((bytes_ += line.size()) > reply_bytes_max)
    return fail(Errc::corrupt, "a reply of more than {} bytes", reply_bytes_max);
  reply_.code = code;
  reply_.lines.emplace_back(line.substr(std::min<std::size_t>(4, line.size())));
  complete = line.size() == 3 || line[3] == ' ';
  return {};
}

// Lines end with LF. A CR before it is removed too.
Result<std::optional<LmtpReply>> LmtpReplyParser::next() {
  std::size_t begin = 0;
  bool complete = false;
  while (!complete) {
    std::size_t lf = input_.find('\n', begin);
    if (std::min(lf, input_.size()) - begin > line_bytes_max)
      return fail(Errc::corrupt, "a line of more than {} bytes for a reply", line_bytes_max);
    if (lf == std::string::npos) break;
    std::string_view line(input_.data() + begin, lf - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    TL_TRY(take_line(line, complete));
    begin = lf + 1;
  }
  input_.erase(0, begin);
  if (!complete) return std::nullopt;
  bytes_ = 0;
  return std::exchange(reply_, {});
}

}  // namespace twinloft::mail
