#include "twinloft/lmtpd/proto/xtext.h"

#include <fmt/format.h>

#include <iterator>

namespace twinloft::lmtpd {

std::string encode_xtext(std::string_view text) {
  std::string out;
  for (char c : text) {
    bool plain = c > 32 && c < 127 && c != '+' && c != '=';
    if (plain)
      out += c;
    else
      fmt::format_to(std::back_inserter(out), "+{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace twinloft::lmtpd
