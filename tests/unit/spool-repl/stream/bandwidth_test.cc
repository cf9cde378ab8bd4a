#include "twinloft/spool-repl/stream/bandwidth.h"

#include <gtest/gtest.h>

namespace twinloft::repl::stream {
namespace {

std::string refusal(std::string_view text) {
  BandwidthPlan plan;
  Status added = plan.add_hours(text);
  return added ? "accepted" : added.error().message;
}

TEST(BandwidthPlanTest, HoursCountInTheirOrder) {
  BandwidthPlan plan(Rate(20u << 20));
  ASSERT_TRUE(plan.add_hours("12:00-13:00 unlimited"));
  ASSERT_TRUE(plan.add_hours("08:00-18:30  4MiB"));
  ASSERT_TRUE(plan.add_hours("22:00-06:00 1GiB"));
  auto at = [&](unsigned hour, unsigned minute) { return plan.at(hour * 60 + minute); };
  EXPECT_EQ(at(7, 59), Rate(20u << 20));
  EXPECT_EQ(at(8, 0), Rate(4u << 20));
  EXPECT_EQ(at(12, 0), Rate());
  EXPECT_EQ(at(13, 0), Rate(4u << 20));
  EXPECT_EQ(at(18, 29), Rate(4u << 20));
  EXPECT_EQ(at(18, 30), Rate(20u << 20));
  EXPECT_EQ(at(22, 0), Rate(1u << 30));
  EXPECT_EQ(at(0, 0), Rate(1u << 30));
  EXPECT_EQ(at(5, 59), Rate(1u << 30));
  EXPECT_EQ(at(6, 0), Rate(20u << 20));
  EXPECT_EQ(BandwidthPlan().at(0), Rate());
}

TEST(BandwidthPlanTest, AnErrorSaysWhatIsExpected) {
  EXPECT_EQ(refusal("00:00-24:00 1MiB"), "accepted");
  for (const char* wrong : {"", "8-18 4MiB", "08:00-18:00", "08:00-18:00 ", "08:00 18:00 4MiB",
                            "08:60-18:00 4MiB", "24:00-08:00 4MiB", "08:00-24:01 4MiB", "08:00-08:00 4MiB",
                            "08:00-18:00 fast", "08:00-18:00-4MiB", "0x:00-18:00 4MiB", "-1:00-18:00 4MiB"})
    EXPECT_NE(refusal(wrong).find("expected hours and a rate, such as \"08:00-18:00 4MiB\""),
              std::string::npos)
        << wrong;
  EXPECT_EQ(refusal("08:00-18:00 1KiB"), "\"08:00-18:00 1KiB\": at least 128 KiB a second");
}

TEST(BandwidthPlanTest, TheDayIsThatOfTheMachine) {
  EXPECT_LT(minute_of_day({1'700'000'000, 0}), 24u * 60);
  EXPECT_EQ(
      (minute_of_day({1'700'000'000 + 3600, 0}) + 24 * 60 - minute_of_day({1'700'000'000, 0})) % (24 * 60),
      60u);
}

struct TokenBucketTest : testing::Test {
  TokenBucket bucket;
  Instant now{1'000'000'000};
  void pass(int ms) { now = now + std::chrono::milliseconds(ms); }
};

TEST_F(TokenBucketTest, WithoutARateNothingWaits) {
  bucket.take(1u << 30, now);
  EXPECT_EQ(bucket.available(now), UINT64_MAX);
  EXPECT_EQ(bucket.wait(now), Duration(0));
}

TEST_F(TokenBucketTest, NoMoreThanTheRatePasses) {
  bucket.set_rate(Rate(1'000'000), now);
  EXPECT_EQ(bucket.available(now), 0u);
  std::uint64_t passed = 0;
  for (int i = 0; i < 10'000; ++i) {
    pass(1);
    std::uint64_t n = bucket.available(now);
    bucket.take(n, now);
    passed += n;
  }
  EXPECT_NEAR(static_cast<double>(passed), 10e6, 1e4);
}

TEST_F(TokenBucketTest, APauseSavesUpNoBurst) {
  bucket.set_rate(Rate(1'000'000), now);
  pass(60'000);
  EXPECT_EQ(bucket.available(now), 50'000u);
}

TEST_F(TokenBucketTest, ADebtIsPaidFirst) {
  bucket.set_rate(Rate(1'000'000), now);
  bucket.take(100'000, now);
  pass(90);
  EXPECT_EQ(bucket.available(now), 0u);
  Duration wait = bucket.wait(now);
  EXPECT_NEAR(static_cast<double>(wait.count()), 26.384e6, 1e5);  // the debt, and 16 KiB
  now = now + wait;
  EXPECT_GE(bucket.available(now), 16'300u);
}

TEST_F(TokenBucketTest, ADebtEndsWithinASecond) {
  bucket.set_rate(Rate(10'000'000), now);
  bucket.take(3'600'000'000, now);
  EXPECT_LE(bucket.wait(now), std::chrono::milliseconds(1010));
  bucket.set_rate(Rate(1'000'000), now);
  EXPECT_LE(bucket.wait(now), std::chrono::milliseconds(1100)) << "a lower rate does not make it longer";
}

TEST_F(TokenBucketTest, ASlowLinkIsNeverSilentForLong) {
  bucket.set_rate(Rate(rate_min), now);
  bucket.take(bucket.available(now), now);
  EXPECT_LE(bucket.wait(now), std::chrono::milliseconds(60));
}

TEST_F(TokenBucketTest, AnotherRateCountsFromNowOn) {
  bucket.set_rate(Rate(1'000'000), now);
  pass(10);
  bucket.set_rate(Rate(100'000'000), now);
  pass(1);
  EXPECT_EQ(bucket.available(now), 110'000u);
  bucket.set_rate(Rate(), now);
  EXPECT_EQ(bucket.available(now), UINT64_MAX);
}

}  // namespace
}  // namespace twinloft::repl::stream
