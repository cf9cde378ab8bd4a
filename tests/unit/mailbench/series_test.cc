#include "twinloft/mailbench/series.h"

#include <gtest/gtest.h>

namespace twinloft::mailbench {
namespace {

Series::Part part(std::uint64_t acknowledged, std::uint64_t failed,
                  std::initializer_list<std::uint64_t> latencies) {
  Series::Part out{.acknowledged = acknowledged, .failed = failed, .latency_ns = {}};
  for (std::uint64_t ns : latencies) out.latency_ns.record(ns);
  return out;
}

TEST(Series, PartsOfASecondAreOneSecond) {
  Series series;
  series.add(2, part(3, 1, {10, 20, 30}));
  series.add(2, part(2, 0, {20, 200}));
  series.add(0, part(1, 0, {7}));
  series.add(1, part(0, 0, {}));
  std::vector<Second> all = series.all();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].acknowledged, 1u);
  EXPECT_EQ(all[0].p50_ns, 7u);
  EXPECT_EQ(all[1].acknowledged, 0u);
  EXPECT_EQ(all[1].p99_ns, 0u);
  EXPECT_EQ(all[2].acknowledged, 5u);
  EXPECT_EQ(all[2].failed, 1u);
  EXPECT_EQ(all[2].messages, 5u);
  EXPECT_EQ(all[2].p50_ns, 20u);
  EXPECT_EQ(all[2].p99_ns, 200u);
  EXPECT_EQ(all[2].max_ns, 200u);
  EXPECT_EQ(series.at(2).messages, 5u);
  EXPECT_EQ(series.at(9).messages, 0u);
}

// The merged seconds have the percentiles of one histogram with all values.
TEST(Series, PercentilesAreThoseOfAllValues) {
  Series series;
  Histogram whole;
  Series::Part parts[3];
  for (std::uint64_t i = 0; i < 3000; ++i) {
    std::uint64_t value = i * i * 37;
    parts[i % 3].latency_ns.record(value);
    whole.record(value);
  }
  for (const Series::Part& p : parts) series.add(0, p);
  EXPECT_EQ(series.at(0).p50_ns, whole.percentile(50));
  EXPECT_EQ(series.at(0).p99_ns, whole.percentile(99));
}

}  // namespace
}  // namespace twinloft::mailbench
