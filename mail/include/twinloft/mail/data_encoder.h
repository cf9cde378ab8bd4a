// Encodes a message for DATA (RFC 5321 sections 2.3.8 and 4.5.2): every line ends with CR LF, and a dot at
// the start of a line is doubled.
//
// Bytes that are a line end for some servers alone must not be sent, since a message could then contain
// another message (SMTP smuggling, CVE-2023-51764). So LF without CR becomes CR LF, and CR without LF becomes
// a blank. LoneCr::keep is for mail that must keep its digest, at a server that the operator names.
#pragma once

#include <string>
#include <string_view>

namespace twinloft::mail {

enum class LoneCr { blank, keep };

class DataEncoder {
 public:
  explicit DataEncoder(LoneCr lone_cr = LoneCr::blank) : lone_cr_(lone_cr) {}
  // Appends the encoded bytes to `out`. The message may be split in any way.
  void feed(std::string_view bytes, std::string& out);
  // Ends the message: appends CR LF if the last line has no end.
  void end_line(std::string& out);
  // The same, and the final dot.
  void finish(std::string& out);

 private:
  void put_lone_cr(std::string& out);
  LoneCr lone_cr_;
  bool line_begins_ = true;
  bool cr_ = false;  // a CR is held back
};

}  // namespace twinloft::mail
