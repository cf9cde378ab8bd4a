#include "twinloft/lmtpd/connect/target_health.h"

#include <algorithm>

namespace twinloft::lmtpd {

namespace {

constexpr Duration first_pause = std::chrono::seconds(1), longest_pause = std::chrono::seconds(30);

}  // namespace

bool TargetHealth::may_try(Instant now) {
  if (!down()) return true;
  if (trying_ || now < not_before_) return false;
  return trying_ = true;
}

// During the pause, failures of earlier attempts have no effect.
void TargetHealth::failed(Instant now) {
  if (down() && !trying_) return;
  trying_ = false;
  pause_ = down() ? std::min(2 * pause_, longest_pause) : first_pause;
  not_before_ = now + pause_;
}

}  // namespace twinloft::lmtpd
