// A message as DATA wants it (RFC 5321 sections 2.3.8 and 4.5.2): lines end with CR LF and nothing else, a
// dot at the start of one is doubled.
//
// What is a line end to some servers and none to others must not go out, or a message could hold another one
// for those (SMTP smuggling, CVE-2023-51764): a LF without a CR becomes CR LF, a CR without a LF a blank.
#pragma once

#include <string>
#include <string_view>

namespace twinloft::lmtpd {

class DataEncoder {
 public:
  // Appends to `out`. Takes the message in any split.
  void feed(std::string_view bytes, std::string& out);
  // The end: CR LF where the last line has none, and the dot.
  void finish(std::string& out);

 private:
  bool line_begins_ = true;
  bool cr_ = false;  // one is held back
};

}  // namespace twinloft::lmtpd
