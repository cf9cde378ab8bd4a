// Which user gets a message: all alike, or by Zipf's law, as in real mail systems.
#pragma once

#include <cstdint>

#include "twinloft/base/random.h"

namespace twinloft::mailbench {

// Ranks from 0 to count - 1. Rank r has a probability proportional to 1 / (r + 1)^exponent.
//
// Rejection-inversion: W. Hoermann, G. Derflinger, "Rejection-inversion to generate variates from monotone
// discrete distributions", ACM TOMACS 6 (1996). It needs no table, and about one draw.
class Popularity {
 public:
  // exponent: 0 (all alike) to 10. count: at least 1.
  Popularity(std::uint64_t count, double exponent);
  std::uint64_t draw(SeededRandom& random) const;

 private:
  double area(double x) const;  // under the density, from 1 to x
  double area_inverse(double x) const;
  double density(double x) const;

  std::uint64_t count_;
  double exponent_;
  double first_ = 0, last_ = 0, sure_ = 0;
};

}  // namespace twinloft::mailbench
