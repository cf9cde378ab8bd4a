// A histogram of latencies with log-linear buckets.
//
// Each value below 256 has its own bucket. Above, each power of two is divided into 128 equal buckets, so
// that a bucket is at most 1/128 of its lower bound wide. A percentile is the upper bound of its bucket, or
// the maximum if that is smaller. So a percentile is too large by less than 0.79 %, and not too small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace twinloft::mailbench {

class Histogram {
 public:
  static constexpr unsigned kSubBits = 7;
  static constexpr std::uint64_t kSub = 1u << kSubBits;  // buckets of a power of two
  static constexpr std::size_t kBuckets = (64 - kSubBits - 1) * kSub + 2 * kSub;

  Histogram();
  void record(std::uint64_t value);
  void merge(const Histogram& other);
  void clear();

  std::uint64_t count() const { return count_; }
  std::uint64_t max() const { return max_; }
  std::uint64_t min() const { return count_ == 0 ? 0 : min_; }
  double mean() const;
  // The smallest upper bound of a bucket that at least `percent` of the values do not exceed. 0: no values.
  // percent: above 0, up to 100.
  std::uint64_t percentile(double percent) const;
  double deviation() const;  // of the buckets' middles: the standard deviation

  // The buckets that are not empty, by value: the upper bound, and the number of values.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> filled() const;

  static std::size_t bucket_of(std::uint64_t value);
  static std::uint64_t bucket_upper(std::size_t bucket);  // the largest value of the bucket

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::uint64_t min_ = UINT64_MAX;
  std::uint64_t max_ = 0;
  double sum_ = 0;
};

// The percentile distribution of nanoseconds as text in milliseconds: the form of HdrHistogram's
// outputPercentileDistribution(), which its plotters read. Five steps for each half of the rest.
std::string hgrm_text(const Histogram& latency_ns);

}  // namespace twinloft::mailbench
