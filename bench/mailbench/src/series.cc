#include "twinloft/mailbench/series.h"

#include <algorithm>
#include <cmath>

namespace twinloft::mailbench {

namespace {

using Filled = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

Filled merged(const Filled& a, const Filled& b) {
  Filled out;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  std::size_t kept = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (kept > 0 && out[kept - 1].first == out[i].first)
      out[kept - 1].second += out[i].second;
    else
      out[kept++] = out[i];
  }
  out.resize(kept);
  return out;
}

std::uint64_t percentile(const Filled& filled, double percent, std::uint64_t count) {
  auto rank = std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(std::ceil(percent / 100 * static_cast<double>(count))));
  std::uint64_t seen = 0;
  for (auto [value, times] : filled)
    if ((seen += times) >= rank) return value;
  return 0;
}

}  // namespace

void Series::add(std::size_t second, const Part& part) {
  if (part.empty()) return;
  std::scoped_lock lock(mutex_);
  if (entries_.size() <= second) entries_.resize(second + 1);
  Entry& entry = entries_[second];
  entry.acknowledged += part.acknowledged;
  entry.failed += part.failed;
  entry.max_ns = std::max(entry.max_ns, part.latency_ns.max());
  entry.latency_ns = merged(entry.latency_ns, part.latency_ns.filled());
}

Second Series::figures(const Entry& entry) {
  Second out{.acknowledged = entry.acknowledged, .failed = entry.failed};
  for (auto [value, times] : entry.latency_ns) out.messages += times;
  out.p50_ns = std::min(percentile(entry.latency_ns, 50, out.messages), entry.max_ns);
  out.p99_ns = std::min(percentile(entry.latency_ns, 99, out.messages), entry.max_ns);
  out.max_ns = entry.max_ns;
  return out;
}

Second Series::at(std::size_t second) const {
  std::scoped_lock lock(mutex_);
  return second < entries_.size() ? figures(entries_[second]) : Second{};
}

std::vector<Second> Series::all() const {
  std::scoped_lock lock(mutex_);
  std::vector<Second> out;
  for (const Entry& entry : entries_) out.push_back(figures(entry));
  return out;
}

void SeriesFeed::count(Instant now, bool acknowledged) {
  auto second = static_cast<std::size_t>((now - start_) / std::chrono::seconds(1));
  if (second != second_) flush();
  second_ = second;
  ++(acknowledged ? part_.acknowledged : part_.failed);
}

void SeriesFeed::flush() {
  series_.add(second_, part_);
  part_.acknowledged = part_.failed = 0;
  if (part_.latency_ns.count() > 0) part_.latency_ns.clear();
}

}  // namespace twinloft::mailbench
