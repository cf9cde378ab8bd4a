// Latency histogram with log-linear buckets.
//
// Values below 256 have a bucket each; above, every power of two is cut into 128 equal buckets. A bucket is
// thus never wider than 1/128 of its lower bound, and percentiles, which are reported as the upper bound of
// their bucket (and never above the true maximum), overstate by less than 0.79 % and never understate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace twinloft::mailbench {

class Histogram {
 public:
  Histogram();
  void record(std::uint64_t value);
  void merge(const Histogram& other);

  std::uint64_t count() const { return count_; }
  std::uint64_t max() const { return max_; }
  std::uint64_t min() const { return count_ == 0 ? 0 : min_; }
  double mean() const;
  // The smallest bucket bound that at least `percent` of the values do not exceed; 0 for an empty histogram.
  // percent: 0 < percent <= 100.
  std::uint64_t percentile(double percent) const;

  static std::size_t bucket_of(std::uint64_t value);
  static std::uint64_t bucket_upper(std::size_t bucket);  // the largest value that falls into it

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::uint64_t min_ = UINT64_MAX;
  std::uint64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace twinloft::mailbench
