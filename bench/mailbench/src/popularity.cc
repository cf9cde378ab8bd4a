#include "twinloft/mailbench/popularity.h"

#include <algorithm>
#include <cmath>

namespace twinloft::mailbench {

namespace {

// (exp(x) - 1) / x and log(1 + x) / x, also near 0.
double exp_slope(double x) {
  return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2;
}
double log_slope(double x) {
  return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2;
}

}  // namespace

Popularity::Popularity(std::uint64_t count, double exponent) : count_(count), exponent_(exponent) {
  if (exponent_ == 0) return;
  first_ = area(1.5) - 1;
  last_ = area(static_cast<double>(count_) + 0.5);
  sure_ = 2 - area_inverse(area(2.5) - density(2));
}

double Popularity::density(double x) const {
  return std::exp(-exponent_ * std::log(x));
}

double Popularity::area(double x) const {
  double log = std::log(x);
  return exp_slope((1 - exponent_) * log) * log;
}

double Popularity::area_inverse(double x) const {
  return std::exp(log_slope(std::max(x * (1 - exponent_), -1.0)) * x);
}

std::uint64_t Popularity::draw(SeededRandom& random) const {
  if (exponent_ == 0) return random.below(count_);
  for (;;) {
    double unit = static_cast<double>(random.draw() >> 11) * 0x1p-53;
    double drawn = last_ + unit * (first_ - last_);
    double x = area_inverse(drawn);
    double rank = std::clamp(std::round(x), 1.0, static_cast<double>(count_));
    if (rank - x <= sure_ || drawn >= area(rank + 0.5) - density(rank))
      return static_cast<std::uint64_t>(rank) - 1;
  }
}

}  // namespace twinloft::mailbench
