#include "twinloft/mailbench/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include "twinloft/base/random.h"

namespace twinloft::mailbench {
namespace {

TEST(Histogram, EveryBucketEndsWhereTheNextBegins) {
  std::size_t last = Histogram::bucket_of(UINT64_MAX);
  for (std::size_t bucket = 0; bucket < last; ++bucket) {
    std::uint64_t upper = Histogram::bucket_upper(bucket);
    ASSERT_EQ(Histogram::bucket_of(upper), bucket);
    ASSERT_EQ(Histogram::bucket_of(upper + 1), bucket + 1);
  }
  EXPECT_EQ(Histogram::bucket_upper(last), UINT64_MAX);
}

TEST(Histogram, TheErrorBoundHolds) {
  SeededRandom random(7);
  for (int i = 0; i < 100000; ++i) {
    std::uint64_t value = random.draw() >> random.below(64);
    std::uint64_t upper = Histogram::bucket_upper(Histogram::bucket_of(value));
    ASSERT_GE(upper, value);
    ASSERT_LE(upper - value, value / 128);
  }
}

TEST(Histogram, PercentilesAreTheExactOnesWithinTheBound) {
  SeededRandom random(8);
  Histogram h;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 10007; ++i) {
    values.push_back(random.below(1'000'000'000) + 1);
    h.record(values.back());
  }
  std::ranges::sort(values);
  for (double p : {1.0, 50.0, 90.0, 99.0, 99.9}) {
    auto rank = static_cast<std::size_t>(std::ceil(p / 100 * static_cast<double>(values.size())));
    std::uint64_t exact = values[rank - 1];
    EXPECT_GE(h.percentile(p), exact);
    EXPECT_LE(h.percentile(p), exact + exact / 128);
  }
  EXPECT_EQ(h.percentile(100), values.back());
  EXPECT_EQ(h.min(), values.front());
}

TEST(Histogram, EmptyIsZero) {
  Histogram h;
  EXPECT_EQ(h.percentile(50), 0u);
  EXPECT_EQ(h.max(), 0u);
  EXPECT_EQ(h.min(), 0u);
  EXPECT_EQ(h.mean(), 0);
}

TEST(Histogram, MergedIsAsIfRecordedInOne) {
  Histogram a, b, both;
  for (std::uint64_t v = 1; v < 5000; ++v) {
    (v % 3 ? a : b).record(v * v);
    both.record(v * v);
  }
  a.merge(b);
  EXPECT_EQ(a.count(), both.count());
  EXPECT_EQ(a.max(), both.max());
  EXPECT_EQ(a.min(), both.min());
  for (double p : {10.0, 50.0, 99.0}) EXPECT_EQ(a.percentile(p), both.percentile(p));
}

TEST(Histogram, DeviationIsThatOfTheValues) {
  Histogram h;
  for (std::uint64_t i = 0; i < 1000; ++i) h.record(1'000'000 + i * 1000);
  EXPECT_NEAR(h.deviation(), 1000 * std::sqrt((1000.0 * 1000 - 1) / 12), 2000);
  h.clear();
  EXPECT_EQ(h.count(), 0u);
  EXPECT_EQ(h.deviation(), 0);
}

// The form that HdrHistogram's plotters read: columns, a last line without a fourth column, three comments.
TEST(Hgrm, HalvesTheRestInFiveSteps) {
  Histogram h;
  for (std::uint64_t i = 1; i <= 1000; ++i) h.record(i * 1'000'000);
  std::string text = hgrm_text(h);
  EXPECT_TRUE(text.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n")) << text;
  // Each value is at most 1/128 too large, and the rows have at least the share that they name.
  std::istringstream rows(text.substr(text.find("\n\n") + 2));
  double value = 0, level = 0, rest = 0;
  std::uint64_t count = 0, row_count = 0;
  while (rows >> value >> level >> count >> rest) {
    ++row_count;
    EXPECT_GE(static_cast<double>(count), level * 1000) << level;
    EXPECT_NEAR(value, std::max(level, 0.001) * 1000, 9) << level;
    EXPECT_NEAR(rest, 1 / (1 - level), 0.01 * rest) << level;
  }
  EXPECT_GT(row_count, 40u);
  EXPECT_NE(text.find("    1000.000 1.000000000000       1000\n#[Mean    =      500.500, StdDeviation   ="),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("#[Max     =     1000.000, Total count    =         1000]\n"), std::string::npos);
  EXPECT_TRUE(hgrm_text(Histogram()).find("Total count    =            0") != std::string::npos);
}

}  // namespace
}  // namespace twinloft::mailbench
