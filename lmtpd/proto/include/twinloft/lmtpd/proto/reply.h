// A reply of RFC 5321 section 4.2 with the enhanced status code of RFC 3463/2034.
#pragma once

#include <string>

namespace twinloft::lmtpd {

struct Reply {
  int code = 0;          // 200..599
  std::string enhanced;  // "2.0.0"; empty where RFC 2034 forbids one (greeting, LHLO, 354)
  std::string text;      // one line of printable text; never holds CR, LF or control bytes (see make_reply)
  bool positive() const { return code >= 200 && code < 400; }
  bool operator==(const Reply&) const = default;
};

}  // namespace twinloft::lmtpd
