#include "twinloft/mail/data_encoder.h"

#include <algorithm>

namespace twinloft::mail {

void DataEncoder::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    if (cr_) {
      cr_ = false;
      if (bytes.front() != '\n') put_lone_cr(out);
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

void DataEncoder::put_lone_cr(std::string& out) {
  out += lone_cr_ == LoneCr::blank ? ' ' : '\r';
  line_begins_ = false;
}

// A CR at the very end is completed to a line end, unless it is to become a blank.
void DataEncoder::end_line(std::string& out) {
  if (cr_ && lone_cr_ == LoneCr::blank) put_lone_cr(out);
  if (!line_begins_ || cr_) out += "\r\n";
  cr_ = false;
  line_begins_ = true;
}

void DataEncoder::finish(std::string& out) {
  end_line(out);
  out += ".\r\n";
}

}  // namespace twinloft::mail
