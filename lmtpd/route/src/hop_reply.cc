#include "hop_reply.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace twinloft::lmtpd {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "5.1.1 no such user" -> "5.1.1", and the rest; RFC 3463 section 2.
std::string take_enhanced(std::string_view& text, int code) {
  std::size_t end = std::min(text.find(' '), text.size());
  std::string_view word = text.substr(0, end);
  if (word.size() < 5 || word[0] - '0' != code / 100) return {};
  std::size_t at = 1;
  for (int part = 0; part < 2; ++part) {
    if (at == word.size() || word[at++] != '.') return {};
    std::size_t from = at;
    while (at < word.size() && is_digit(word[at])) ++at;
    if (at == from || at - from > 3) return {};
  }
  if (at != word.size()) return {};
  std::string out(word);
  text.remove_prefix(std::min(end + 1, text.size()));
  return out;
}

// Which 5xx are about the message or its recipient (RFC 5321 section 4.2.3, RFC 7504): 550 to 554, and 556.
bool is_about_mail(int code) {
  return (code >= 550 && code <= 554) || code == 556;
}

}  // namespace

std::string HopReply::text() const {
  return fmt::format("{} {}", code, fmt::join(lines, " / "));
}

Status ReplyParser::take_line(std::string_view line, bool& complete) {
  bool has_code = line.size() >= 3 && line[0] >= '2' && line[0] <= '5' && is_digit(line[1]) &&
                  is_digit(line[2]);
  if (!has_code || (line.size() > 3 && line[3] != ' ' && line[3] != '-'))
    return fail(Errc::corrupt, "\"{}\" is no reply", make_reply(451, "", line.substr(0, 80)).text);
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

// Lines end with LF; a CR before it goes too.
Result<std::optional<HopReply>> ReplyParser::next() {
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

Reply reply_of_hop(const HopReply& reply, Stage stage) {
  int code = reply.code;
  bool refused = code >= 500;
  bool taken = code >= 250 && code <= 252;  // 221 would be somebody who leaves
  bool expected = code >= 400 || (stage == Stage::message && taken);
  std::string text = fmt::format("{}", fmt::join(reply.lines, " "));
  if (!expected || code == 421 || (refused && !is_about_mail(code)))
    return make_reply(451, refused ? "4.3.5" : "4.3.0",
                      fmt::format("The mail store said: {} {}", code, text));
  std::string_view rest = text;
  std::string enhanced = take_enhanced(rest, code);
  if (enhanced.empty()) enhanced = fmt::format("{}.0.0", code / 100);
  if (!refused && code < 400) code = 250;
  // RFC 5321 section 4.5.3.1.10: too many recipients for one transaction.
  if (stage == Stage::recipient && code == 552 && enhanced == "5.5.3") code = 452, enhanced = "4.5.3";
  return make_reply(code, enhanced, rest.empty() ? "(the mail store gave no reason)" : rest);
}

}  // namespace twinloft::lmtpd
