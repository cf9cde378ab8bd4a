// Whether a server that lmtpd connects to can be reached.
#pragma once

#include "twinloft/base/clock.h"

namespace twinloft::lmtpd {

// After a failure the server is not tried for 1 s, and for twice as long after each further failure, up to
// 30 s. Then one caller tries, while the others fail at once. Not thread-safe.
class TargetHealth {
 public:
  // Whether to try now. After true, the caller calls worked() or failed().
  bool may_try(Instant now);
  void worked() { *this = TargetHealth(); }
  void failed(Instant now);
  bool down() const { return pause_.count() > 0; }

 private:
  Instant not_before_{};
  Duration pause_{};
  bool trying_ = false;  // while the server is down: one caller is trying
};

}  // namespace twinloft::lmtpd
