// Case folding of addresses: ASCII only, other bytes stay.
#pragma once

#include <string>
#include <string_view>

namespace twinloft::lmtpd {

inline std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

}  // namespace twinloft::lmtpd
