#include "twinloft/mailbench/units.h"

#include <gtest/gtest.h>

#include <cmath>

namespace twinloft::mailbench {
namespace {

double measured_mean(const SizeDistribution& d, std::uint64_t low, std::uint64_t high) {
  SeededRandom random(11);
  double sum = 0;
  constexpr int count = 400000;
  for (int i = 0; i < count; ++i) {
    std::uint64_t size = d.draw(random);
    EXPECT_GE(size, low);
    EXPECT_LE(size, high);
    sum += static_cast<double>(size);
  }
  return sum / count;
}

TEST(SizeDistribution, FixedAndUniform) {
  auto fixed = SizeDistribution::parse("4KiB");
  ASSERT_TRUE(fixed);
  EXPECT_EQ(measured_mean(*fixed, 4096, 4096), 4096);
  auto uniform = SizeDistribution::parse("uniform:1KiB-3KiB");
  ASSERT_TRUE(uniform);
  EXPECT_EQ(uniform->mean(), 2048);
  EXPECT_NEAR(measured_mean(*uniform, 1024, 3072), 2048, 10);
}

TEST(SizeDistribution, LognormalHasTheMeanThatWasAskedFor) {
  for (const char* text :
       {"mean:70KiB", "mean:70KiB,sigma:0.5", "mean:70KiB,min:60KiB,max:128KiB", "mean:2KiB"}) {
    auto d = SizeDistribution::parse(text);
    ASSERT_TRUE(d) << text;
    double wanted = std::string_view(text).starts_with("mean:2") ? 2048 : 71680;
    EXPECT_NEAR(d->mean(), wanted, 1) << text;
    EXPECT_NEAR(measured_mean(*d, 1000, 32 * 71680), wanted, wanted * 0.02) << text;
  }
}

TEST(SizeDistribution, HalfOfTheMessagesAreSmall) {
  auto d = SizeDistribution::parse("mean:70KiB");
  ASSERT_TRUE(d);
  SeededRandom random(3);
  int small = 0;
  for (int i = 0; i < 100000; ++i) small += d->draw(random) < 71680 / 2.5;
  EXPECT_GT(small, 50000);
}

TEST(SizeDistribution, RefusesWhatMakesNoSense) {
  for (const char* bad :
       {"", "mean:", "mean:0", "mean:4KiB,min:8KiB", "mean:4KiB,max:2KiB", "mean:4KiB,sigma:0",
        "mean:4KiB,sigma:x", "mean:4KiB,foo:1", "uniform:4KiB", "uniform:8KiB-4KiB", "fixed:2TiB"})
    EXPECT_FALSE(SizeDistribution::parse(bad)) << bad;
}

}  // namespace
}  // namespace twinloft::mailbench
