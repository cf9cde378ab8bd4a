#include "twinloft/mailbench/units.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "twinloft/base/units.h"

namespace twinloft::mailbench {

namespace {

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}

// Uniform in (0, 1].
double unit_interval(SeededRandom& random) {
  return (static_cast<double>(random.draw() >> 11) + 1) * 0x1p-53;
}

double standard_normal(SeededRandom& random) {
  double radius = std::sqrt(-2 * std::log(unit_interval(random)));
  return radius * std::cos(2 * std::numbers::pi * unit_interval(random));
}

constexpr double kMessageMax = 1u << 30;

}  // namespace

Result<SizeDistribution> SizeDistribution::parse(std::string_view text) {
  SizeDistribution d;
  d.text_ = text;
  if (text.starts_with("mean:")) {
    TL_TRY(d.parse_lognormal(text));
  } else if (text.starts_with("uniform:")) {
    std::string_view range = text.substr(8);
    std::size_t dash = range.find('-');
    if (dash == range.npos) return fail(Errc::invalid, "'{}': write uniform:SMALLEST-LARGEST", text);
    TL_TRY_ASSIGN(std::uint64_t low, parse_size(range.substr(0, dash)));
    TL_TRY_ASSIGN(std::uint64_t high, parse_size(range.substr(dash + 1)));
    d.kind_ = Kind::uniform;
    d.min_ = static_cast<double>(low);
    d.max_ = static_cast<double>(high);
  } else {
    TL_TRY_ASSIGN(std::uint64_t size, parse_size(text.starts_with("fixed:") ? text.substr(6) : text));
    d.min_ = d.max_ = static_cast<double>(size);
  }
  if (d.min_ > d.max_) return fail(Errc::invalid, "'{}': the smallest size is above the largest", text);
  if (d.max_ > kMessageMax)
    return fail(Errc::invalid, "'{}': messages of more than 1 GiB are not made", text);
  return d;
}

Status SizeDistribution::parse_lognormal(std::string_view text) {
  kind_ = Kind::lognormal;
  double wanted = 0;
  min_ = max_ = 0;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    std::size_t colon = item.find(':');
    std::string_view key = item.substr(0, colon);
    std::string_view value = colon == item.npos ? "" : item.substr(colon + 1);
    if (key == "sigma") {
      auto [end, ec] = std::from_chars(value.data(), value.data() + value.size(), sigma_);
      bool whole = ec == std::errc{} && end == value.data() + value.size();
      if (!whole || !(sigma_ > 0 && sigma_ <= 4)) return fail(Errc::invalid, "'{}': sigma is in 0..4", text);
      continue;
    }
    TL_TRY_ASSIGN(std::uint64_t bytes, parse_size(value));
    if (key == "mean")
      wanted = static_cast<double>(bytes);
    else if (key == "min")
      min_ = static_cast<double>(bytes);
    else if (key == "max")
      max_ = static_cast<double>(bytes);
    else
      return fail(Errc::invalid, "'{}': '{}' is unknown; mean, sigma, min and max are known", text, key);
  }
  if (min_ == 0) min_ = std::min(1024.0, wanted / 2);
  if (max_ == 0) max_ = 32 * wanted;
  if (!(min_ < wanted && wanted < max_))
    return fail(Errc::invalid, "'{}': the mean must lie between min and max", text);
  // The limited mean grows with mu: bisection until it is exact to less than a byte.
  double low = std::log(std::max(min_, 1.0)) - 8 * sigma_, high = std::log(max_) + 8 * sigma_;
  for (int i = 0; i < 100; ++i) {
    mu_ = (low + high) / 2;
    (clamped_mean(mu_) < wanted ? low : high) = mu_;
  }
  return {};
}

// E[clamp(exp(N(mu, sigma)), min, max)].
double SizeDistribution::clamped_mean(double mu) const {
  double a = (std::log(std::max(min_, 1.0)) - mu) / sigma_;
  double b = (std::log(max_) - mu) / sigma_;
  double inside = std::exp(mu + sigma_ * sigma_ / 2) * (normal_cdf(b - sigma_) - normal_cdf(a - sigma_));
  return min_ * normal_cdf(a) + inside + max_ * normal_cdf(-b);
}

double SizeDistribution::mean() const {
  return kind_ == Kind::lognormal ? clamped_mean(mu_) : (min_ + max_) / 2;
}

std::uint64_t SizeDistribution::draw(SeededRandom& random) const {
  auto low = static_cast<std::uint64_t>(min_), high = static_cast<std::uint64_t>(max_);
  switch (kind_) {
    case Kind::fixed:
      return low;
    case Kind::uniform:
      return low + random.below(high - low + 1);
    case Kind::lognormal:
      break;
  }
  double drawn = std::exp(mu_ + sigma_ * standard_normal(random));
  return static_cast<std::uint64_t>(std::llround(std::clamp(drawn, min_, max_)));
}

}  // namespace twinloft::mailbench
