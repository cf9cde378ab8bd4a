// When the messages of an open loop are due.
//
// The expected number of messages until a time is a function of that time: a parabola during the ramp, and
// then a line. A constant arrival process has message n where this function reaches n. A Poisson process has
// gaps between them that are exponential with mean 1, on the same function.
#pragma once

#include <cstdint>

#include "twinloft/base/clock.h"
#include "twinloft/base/random.h"

namespace twinloft::mailbench {

class Arrivals {
 public:
  enum class Kind : std::uint8_t { constant, poisson };
  // rate: messages a second, after the ramp. ramp: the rate grows from 0 in this time.
  Arrivals(Kind kind, double rate, Duration ramp, std::uint64_t seed);

  Duration next() const { return next_; }  // after the start of the run
  void advance();                          // to the message after it

 private:
  Duration time_of(double count) const;

  Kind kind_;
  double rate_, ramp_s_;
  SeededRandom random_;
  std::uint64_t number_ = 0;
  double count_ = 0;  // where the message lies, in messages expected until then
  Duration next_{0};
};

}  // namespace twinloft::mailbench
