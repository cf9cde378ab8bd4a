#include "twinloft/mail/lmtp_offer.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace twinloft::mail {

namespace {

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> out;
  while (!line.empty()) {
    std::size_t end = std::min(line.find(' '), line.size());
    if (end > 0) out.push_back(upper(line.substr(0, end)));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return out;
}

}  // namespace

LmtpOffer read_offer(const std::vector<std::string>& lhlo_lines) {
  LmtpOffer out;
  for (std::size_t i = 1; i < lhlo_lines.size(); ++i) {  // the first line is the greeting
    std::vector<std::string> words = words_of(lhlo_lines[i]);
    if (words.empty()) continue;
    for (auto [name, flag] : {std::pair("PIPELINING", &LmtpOffer::pipelining),
                              {"SIZE", &LmtpOffer::size},
                              {"8BITMIME", &LmtpOffer::eight_bit_mime},
                              {"SMTPUTF8", &LmtpOffer::smtputf8},
                              {"CHUNKING", &LmtpOffer::chunking},
                              {"DSN", &LmtpOffer::dsn},
                              {"STARTTLS", &LmtpOffer::start_tls}})
      if (words[0] == name) out.*flag = true;
    if (words[0] == "XCLIENT") out.xclient.insert(words.begin() + 1, words.end());
    if (words[0] == "XFORWARD") out.xforward.insert(words.begin() + 1, words.end());
  }
  return out;
}

}  // namespace twinloft::mail
