#include "twinloft/mailbench/reply.h"

#include <algorithm>

namespace twinloft::mailbench {

namespace {
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The bytes of a server in a form for a log.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 120));
  std::ranges::replace_if(out, [](unsigned char c) { return c < ' ' || c >= 127; }, '?');
  return out;
}
}  // namespace

Result<bool> ReplyParser::feed(std::string_view& bytes) {
  while (!bytes.empty()) {
    std::size_t lf = bytes.find('\n');
    std::string_view part = bytes.substr(0, lf);
    if (line_.size() + part.size() > kLineMax)
      return fail(Errc::corrupt, "the server sent a reply line of more than {} bytes", kLineMax);
    line_.append(part);
    if (lf == bytes.npos) {
      bytes = {};
      return false;
    }
    bytes.remove_prefix(lf + 1);
    TL_TRY_ASSIGN(bool whole, end_line());
    if (whole) return true;
  }
  return false;
}

Result<bool> ReplyParser::end_line() {
  if (line_.ends_with('\r')) line_.pop_back();
  std::string_view line = line_;
  bool has_code = line.size() >= 3 && line[0] >= '2' && line[0] <= '5' && is_digit(line[1]) &&
                  is_digit(line[2]);
  char separator = line.size() > 3 ? line[3] : ' ';
  if (!has_code || (separator != ' ' && separator != '-'))
    return fail(Errc::corrupt, "the server sent '{}', which is not a reply", shown(line));
  int code = (line[0] - '0') * 100 + (line[1] - '0') * 10 + (line[2] - '0');
  if (!open_) {
    reply_.lines.clear();
    reply_.code = code;
  } else if (code != reply_.code) {
    return fail(Errc::corrupt, "the server changed the code from {} to {} within one reply", reply_.code,
                code);
  }
  if (reply_.lines.size() == kLinesMax)
    return fail(Errc::corrupt, "the server sent a reply of more than {} lines", kLinesMax);
  reply_.lines.emplace_back(line.substr(std::min<std::size_t>(4, line.size())));
  open_ = separator == '-';
  line_.clear();
  return !open_;
}

}  // namespace twinloft::mailbench
