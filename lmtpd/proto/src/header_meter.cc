#include "twinloft/lmtpd/proto/header_meter.h"

#include <cstring>
#include <utility>

namespace twinloft::lmtpd {

void HeaderMeter::feed(ByteSpan in) {
  while (!ended_ && !in.empty()) {
    if (line_start_) {
      if (in.front() == std::byte{'\n'}) {
        ended_ = true;
        return;
      }
      if (in.front() == std::byte{'\r'} && !std::exchange(cr_, true)) {
        in = in.subspan(1);
        continue;
      }
      bytes_ += cr_;  // the CR did not belong to an empty line
      line_start_ = cr_ = false;
    }
    const void* found = std::memchr(in.data(), '\n', in.size());
    std::size_t length = found
                             ? static_cast<std::size_t>(static_cast<const std::byte*>(found) - in.data()) + 1
                             : in.size();
    bytes_ += length;
    line_start_ = found != nullptr;
    in = in.subspan(length);
  }
}

}  // namespace twinloft::lmtpd
