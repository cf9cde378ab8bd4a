#include "twinloft/mailbench/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>

namespace twinloft::mailbench {
namespace {

using namespace std::chrono_literals;
using Kind = Arrivals::Kind;

std::vector<double> gaps(Arrivals arrivals, int count) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    Duration before = arrivals.next();
    arrivals.advance();
    out.push_back(std::chrono::duration<double>(arrivals.next() - before).count());
  }
  return out;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

TEST(Arrivals, ConstantOnesAreEvenlySpaced) {
  Arrivals a(Kind::constant, 1000, 0s, 1);
  EXPECT_EQ(a.next(), 0ns);
  for (int i = 1; i <= 5000; ++i) {
    a.advance();
    EXPECT_EQ(a.next(), Duration(1ms) * i);
  }
}

// The gaps of a Poisson process are exponential: their deviation is their mean, and e^-1 of them are longer.
TEST(Arrivals, PoissonGapsAreExponential) {
  std::vector<double> all = gaps(Arrivals(Kind::poisson, 500, 0s, 7), 20000);
  double m = mean(all), square = 0, longer = 0;
  for (double gap : all) {
    square += (gap - m) * (gap - m);
    longer += gap > m;
  }
  double count = static_cast<double>(all.size());
  EXPECT_NEAR(m, 1.0 / 500, 0.03 / 500);
  EXPECT_NEAR(std::sqrt(square / count) / m, 1, 0.04);
  EXPECT_NEAR(longer / count, std::exp(-1), 0.015);
  EXPECT_EQ(gaps(Arrivals(Kind::poisson, 500, 0s, 7), 100), std::vector(all.begin(), all.begin() + 100));
  EXPECT_NE(gaps(Arrivals(Kind::poisson, 500, 0s, 8), 100), std::vector(all.begin(), all.begin() + 100));
}

TEST(Arrivals, TheRampHasHalfOfTheMessages) {
  for (Kind kind : {Kind::constant, Kind::poisson}) {
    Arrivals a(kind, 10000, 2s, 3);
    int first_half = 0, ramp = 0, after = 0;
    for (; a.next() < 4s; a.advance()) {
      first_half += a.next() < 1s;
      ramp += a.next() < 2s;
      after += a.next() >= 2s;
    }
    EXPECT_NEAR(first_half, 2500, kind == Kind::constant ? 1 : 250);
    EXPECT_NEAR(ramp, 10000, kind == Kind::constant ? 1 : 500);
    EXPECT_NEAR(after, 20000, kind == Kind::constant ? 1 : 700);
  }
}

TEST(Arrivals, TimeNeverGoesBack) {
  Arrivals a(Kind::poisson, 1e6, 10ms, 5);
  for (int i = 0; i < 100000; ++i) {
    Duration before = a.next();
    a.advance();
    ASSERT_GE(a.next(), before);
  }
}

}  // namespace
}  // namespace twinloft::mailbench
