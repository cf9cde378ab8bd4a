// Whether a server that lmtpd connects to is there.
#pragma once

#include "twinloft/base/clock.h"

namespace twinloft::lmtpd {

// One that cannot be reached is left alone for a second, and for twice as long each further time, up to 30 s;
// then one attempt shows whether it is back. Meanwhile nobody waits for it. Not thread-safe.
class TargetHealth {
 public:
  // Whether to try now. True is to be followed by worked() or failed().
  bool may_try(Instant now);
  void worked() { *this = TargetHealth(); }
  void failed(Instant now);
  bool down() const { return pause_.count() > 0; }

 private:
  Instant not_before_{};
  Duration pause_{};
  bool trying_ = false;  // where it is down: by one at a time
};

}  // namespace twinloft::lmtpd
