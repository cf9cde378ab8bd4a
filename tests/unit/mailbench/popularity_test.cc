#include "twinloft/mailbench/popularity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace twinloft::mailbench {
namespace {

std::vector<double> frequencies(std::uint64_t count, double exponent, int draws) {
  Popularity popularity(count, exponent);
  SeededRandom random(11);
  std::vector<double> out(count);
  for (int i = 0; i < draws; ++i) out.at(popularity.draw(random)) += 1.0 / draws;
  return out;
}

TEST(Popularity, WithoutAnExponentAllAreAlike) {
  for (double f : frequencies(10, 0, 100000)) EXPECT_NEAR(f, 0.1, 0.006);
}

TEST(Popularity, ZipfsLaw) {
  for (double exponent : {0.5, 1.0, 1.2, 2.0}) {
    constexpr std::uint64_t kCount = 50;
    double sum = 0;
    for (std::uint64_t k = 1; k <= kCount; ++k) sum += std::pow(static_cast<double>(k), -exponent);
    std::vector<double> found = frequencies(kCount, exponent, 200000);
    for (std::uint64_t k = 1; k <= kCount; ++k)
      EXPECT_NEAR(found[k - 1], std::pow(static_cast<double>(k), -exponent) / sum, 0.006)
          << exponent << " " << k;
  }
}

TEST(Popularity, OneUserAndManyUsers) {
  SeededRandom random(3);
  Popularity one(1, 1.1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(one.draw(random), 0u);
  Popularity many(1'000'000'000, 1.0);
  std::uint64_t largest = 0;
  for (int i = 0; i < 10000; ++i) largest = std::max(largest, many.draw(random));
  EXPECT_LT(largest, 1'000'000'000u);
  EXPECT_GT(largest, 100'000'000u);  // with an exponent of 1 each power of ten has an equal share
}

}  // namespace
}  // namespace twinloft::mailbench
