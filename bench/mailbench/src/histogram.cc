#include "twinloft/mailbench/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace twinloft::mailbench {

Histogram::Histogram() : buckets_(kBuckets, 0) {}

std::size_t Histogram::bucket_of(std::uint64_t value) {
  if (value < 2 * kSub) return value;
  unsigned shift = static_cast<unsigned>(std::bit_width(value)) - (kSubBits + 1);
  return shift * kSub + (value >> shift);
}

std::uint64_t Histogram::bucket_upper(std::size_t bucket) {
  if (bucket < 2 * kSub) return bucket;
  unsigned shift = static_cast<unsigned>(bucket / kSub) - 1;
  std::uint64_t mantissa = bucket - shift * kSub;
  // For the last bucket the sum wraps to 0, so that the difference is the largest value.
  return ((mantissa + 1) << shift) - 1;
}

void Histogram::record(std::uint64_t value) {
  ++buckets_[bucket_of(value)];
  ++count_;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value);
}

void Histogram::merge(const Histogram& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

void Histogram::clear() {
  *this = Histogram();
}

double Histogram::mean() const {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

std::uint64_t Histogram::percentile(double percent) const {
  if (count_ == 0) return 0;
  auto rank = static_cast<std::uint64_t>(std::ceil(percent / 100 * static_cast<double>(count_)));
  rank = std::clamp<std::uint64_t>(rank, 1, count_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::min(bucket_upper(i), max_);
  }
  return max_;
}

double Histogram::deviation() const {
  if (count_ == 0) return 0;
  double sum = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] == 0) continue;
    double lower = i == 0 ? 0 : static_cast<double>(bucket_upper(i - 1)) + 1;
    double away = (lower + static_cast<double>(bucket_upper(i))) / 2 - mean();
    sum += away * away * static_cast<double>(buckets_[i]);
  }
  return std::sqrt(sum / static_cast<double>(count_));
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> Histogram::filled() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (buckets_[i] > 0) out.emplace_back(bucket_upper(i), buckets_[i]);
  return out;
}

}  // namespace twinloft::mailbench
