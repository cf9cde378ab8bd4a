// What an LMTP server offers in its reply to LHLO.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace twinloft::mail {

struct LmtpOffer {
  bool pipelining = false, size = false, eight_bit_mime = false, smtputf8 = false, chunking = false,
       dsn = false, start_tls = false;
  std::set<std::string, std::less<>> xclient, xforward;  // attributes, in capitals
};
// `lhlo_lines`: of the reply, the first of which greets.
LmtpOffer read_offer(const std::vector<std::string>& lhlo_lines);

}  // namespace twinloft::mail
