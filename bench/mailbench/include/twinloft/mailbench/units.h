// Message sizes from a distribution, which the user gives as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/base/random.h"
#include "twinloft/base/result.h"

namespace twinloft::mailbench {

// "4KiB" | "fixed:4KiB" | "uniform:1KiB-64KiB" | "mean:70KiB[,sigma:1.5][,min:1KiB][,max:2240KiB]".
//
// The last form is lognormal: exp(N(mu, sigma)), limited to [min, max]. parse() computes mu, so that the mean
// with these limits is the given mean. Defaults: sigma 1.5, min 1 KiB (or mean/2, if that is less), max 32
// times the mean. With sigma 1.5, half of the messages are smaller than about a third of the mean, as in real
// mail.
class SizeDistribution {
 public:
  static Result<SizeDistribution> parse(std::string_view text);
  std::uint64_t draw(SeededRandom& random) const;  // bytes
  double mean() const;                             // of the results of draw()
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
