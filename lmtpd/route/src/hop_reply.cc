#include "hop_reply.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace twinloft::lmtpd {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Splits "5.1.1 no such user" into the code and the rest (RFC 3463 section 2).
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

// Whether a 5xx concerns the message or its recipient (RFC 5321 section 4.2.3, RFC 7504): 550 to 554, and
// 556.
bool is_about_mail(int code) {
  return (code >= 550 && code <= 554) || code == 556;
}

}  // namespace

Reply reply_of_hop(const mail::LmtpReply& reply, Stage stage) {
  int code = reply.code;
  bool refused = code >= 500;
  bool taken = code >= 250 && code <= 252;  // 221: the server closes the connection
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
