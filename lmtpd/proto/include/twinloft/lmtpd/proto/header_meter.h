// Measures the header of a message while the message arrives: the bytes before the first empty line (RFC 5322
// section 2.1).
#pragma once

#include <cstdint>

#include "twinloft/base/bytes.h"

namespace twinloft::lmtpd {

// A line ends with LF, with or without CR before it, as it does for the readers of the stored message.
class HeaderMeter {
 public:
  void reset() { *this = {}; }
  void feed(ByteSpan in);
  std::uint64_t bytes() const { return bytes_; }  // without the empty line
  bool ended() const { return ended_; }

 private:
  std::uint64_t bytes_ = 0;
  bool line_start_ = true;
  bool cr_ = false;  // after a CR at a line's start, which may belong to the empty line
  bool ended_ = false;
};

}  // namespace twinloft::lmtpd
