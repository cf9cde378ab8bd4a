// The extensions that an LMTP server offers in its reply to LHLO.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace twinloft::mail {

struct LmtpOffer {
  bool pipelining = false, size = false, eight_bit_mime = false, smtputf8 = false, chunking = false,
       dsn = false, start_tls = false;
  std::set<std::string, std::less<>> xclient, xforward;  // attributes, in upper case
};
// lhlo_lines: the lines of the reply. The first line is the greeting.
LmtpOffer read_offer(const std::vector<std::string>& lhlo_lines);

}  // namespace twinloft::mail
