// How long a message's header is, while it streams: up to the first empty line (RFC 5322 section 2.1).
#pragma once

#include <cstdint>

#include "twinloft/base/bytes.h"

namespace twinloft::lmtpd {

// A line ends with LF, with or without CR before it: a header that ends for a reader of the stored message
// has ended here too.
class HeaderMeter {
 public:
  void reset() { *this = {}; }
  void feed(ByteSpan in);
  std::uint64_t bytes() const { return bytes_; }  // without the empty line
  bool ended() const { return ended_; }

 private:
  std::uint64_t bytes_ = 0;
  bool line_start_ = true;
  bool cr_ = false;  // a CR at the line's start, which may be the empty line's
  bool ended_ = false;
};

}  // namespace twinloft::lmtpd
