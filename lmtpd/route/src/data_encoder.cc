#include "data_encoder.h"

#include <algorithm>

namespace twinloft::lmtpd {

void DataEncoder::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    if (cr_) {
      cr_ = false;
      if (bytes.front() != '\n') out += ' ', line_begins_ = false;
    }
    if (line_begins_ && bytes.front() == '.') out += '.';
    std::size_t plain = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (plain > 0) line_begins_ = false;
    out.append(bytes.substr(0, plain));
    bytes.remove_prefix(plain);
    if (bytes.empty()) return;
    if (bytes.front() == '\r')
      cr_ = true;
    else
      out += "\r\n", line_begins_ = true;
    bytes.remove_prefix(1);
  }
}

void DataEncoder::finish(std::string& out) {
  if (cr_) out += ' ', line_begins_ = false, cr_ = false;
  if (!line_begins_) out += "\r\n";
  out += ".\r\n";
  line_begins_ = true;
}

}  // namespace twinloft::lmtpd
