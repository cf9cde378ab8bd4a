// Message sizes drawn from a distribution, as users write it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/base/random.h"
#include "twinloft/base/result.h"

namespace twinloft::mailbench {

// "4KiB" | "fixed:4KiB" | "uniform:1KiB-64KiB" | "mean:70KiB[,sigma:1.5][,min:1KiB][,max:2240KiB]".
//
// The last is lognormal: exp(N(mu, sigma)), clamped to [min, max]. mu is solved at parse time such that the
// mean after clamping is the one asked for. Defaults: sigma 1.5, min 1 KiB (or mean/2, if that is less), max
// 32 times the mean. With sigma 1.5 half of the messages are smaller than about a third of the mean, as in
// real mail.
class SizeDistribution {
 public:
  static Result<SizeDistribution> parse(std::string_view text);
  std::uint64_t draw(SeededRandom& random) const;  // bytes
  double mean() const;                             // of what draw() returns
  const std::string& text() const { return text_; }

 private:
  enum class Kind { fixed, uniform, lognormal };
  Status parse_lognormal(std::string_view parameters);
  double clamped_mean(double mu) const;

  Kind kind_ = Kind::fixed;
  double min_ = 0, max_ = 0;  // bytes; both the size itself for `fixed`
  double mu_ = 0, sigma_ = 1.5;
  std::string text_;
};

}  // namespace twinloft::mailbench
