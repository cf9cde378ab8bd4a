// A message as DATA wants it (RFC 5321 sections 2.3.8 and 4.5.2): lines end with CR LF and nothing else, a
// dot at the start of one is doubled.
//
// What is a line end to some servers and none to others must not go out, or a message could hold another one
// for those (SMTP smuggling, CVE-2023-51764): a LF without a CR becomes CR LF, a CR without a LF a blank.
// LoneCr::keep is for mail that has to arrive with the digest that it had, at a server that the operator
// names.
#pragma once

#include <string>
#include <string_view>

namespace twinloft::mail {

enum class LoneCr { blank, keep };

class DataEncoder {
 public:
  explicit DataEncoder(LoneCr lone_cr = LoneCr::blank) : lone_cr_(lone_cr) {}
  // Appends to `out`. Takes the message in any split.
  void feed(std::string_view bytes, std::string& out);
  // The message's end: CR LF where the last line has none.
  void end_line(std::string& out);
  // The same, and the dot.
  void finish(std::string& out);

 private:
  void put_lone_cr(std::string& out);
  LoneCr lone_cr_;
  bool line_begins_ = true;
  bool cr_ = false;  // one is held back
};

}  // namespace twinloft::mail
