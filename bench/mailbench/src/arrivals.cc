#include "twinloft/mailbench/arrivals.h"

#include <cmath>

namespace twinloft::mailbench {

Arrivals::Arrivals(Kind kind, double rate, Duration ramp, std::uint64_t seed)
    : kind_(kind),
      rate_(rate),
      ramp_s_(std::chrono::duration<double>(ramp).count()),
      random_(seed ^ 0x6172726976616c73) {}

void Arrivals::advance() {
  ++number_;
  if (kind_ == Kind::constant)
    count_ = static_cast<double>(number_);
  else
    count_ -= std::log((static_cast<double>(random_.draw() >> 11) + 1) * 0x1p-53);
  next_ = time_of(count_);
}

// Until the end of the ramp, rate * t^2 / (2 * ramp) messages are expected; half as many as without a ramp.
Duration Arrivals::time_of(double count) const {
  double at_ramp_end = rate_ * ramp_s_ / 2;
  double seconds = count < at_ramp_end ? std::sqrt(2 * ramp_s_ * count / rate_)
                                       : ramp_s_ + (count - at_ramp_end) / rate_;
  return Duration(std::llround(seconds * 1e9));
}

}  // namespace twinloft::mailbench
