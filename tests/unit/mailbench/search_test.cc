#include "twinloft/mailbench/search.h"

#include <gtest/gtest.h>

namespace twinloft::mailbench {
namespace {

using namespace std::chrono_literals;

// A server that keeps its promise up to `limit`. Returns what the search finds, and counts the trials.
std::optional<double> search(double first, double limit, int& trials, unsigned confirmations = 2) {
  RateSearch s(first, 0.03, confirmations);
  for (trials = 0; trials < 200; ++trials) {
    auto rate = s.next();
    if (!rate) return s.found();
    s.take(*rate <= limit);
  }
  ADD_FAILURE() << "the search does not end";
  return {};
}

TEST(RateSearch, FindsTheLimit) {
  for (double limit : {3.0, 40.0, 99.0, 100.0, 170.0, 1000.0}) {
    int trials = 0;
    auto found = search(100, limit, trials);
    ASSERT_TRUE(found) << limit;
    EXPECT_LE(*found, limit);
    EXPECT_GE(*found, limit * 0.969) << limit;
    EXPECT_LE(trials, 24) << limit;
  }
}

TEST(RateSearch, EndsForAServerWithoutALimit) {
  RateSearch s(100, 0.03, 2);
  int trials = 0;
  for (; s.next(); ++trials) s.take(true);
  EXPECT_LE(trials, 100);
  EXPECT_FALSE(s.found());
}

TEST(RateSearch, GivesUpBelowAThousandthOfTheFirstRate) {
  int trials = 0;
  EXPECT_FALSE(search(100, 0, trials));
  EXPECT_LE(trials, 15);
}

// A rate that was kept by luck gives way to a lower one.
TEST(RateSearch, AConfirmationThatFailsLowersTheRate) {
  RateSearch s(100, 0.03, 2);
  int above = 0;
  std::optional<double> rate;
  while ((rate = s.next())) {
    bool lucky = *rate > 80 && *rate <= 90 && above++ == 0;
    s.take(*rate <= 80 || lucky);
  }
  ASSERT_TRUE(s.found());
  EXPECT_LE(*s.found(), 80);
  EXPECT_GE(*s.found(), 75);
}

LoadResult result(std::initializer_list<std::uint64_t> latencies_ms, std::uint64_t failed = 0,
                  std::uint64_t waiting = 0) {
  LoadResult out;
  for (std::uint64_t ms : latencies_ms) out.stats.latency.record(std::chrono::milliseconds(ms), true);
  out.stats.last_outcomes[0] = latencies_ms.size();
  out.stats.last_outcomes[1] = failed;
  out.messages_started = latencies_ms.size() + failed;
  out.waiting = waiting;
  return out;
}

TEST(Promise, Latency) {
  auto promise = Promise::parse("p50<10ms,max<1s");
  ASSERT_TRUE(promise) << promise.error().message;
  EXPECT_EQ(promise->broken_by(result({1, 2, 3, 900})), "");
  EXPECT_EQ(promise->broken_by(result({1, 11, 12, 13})), "p50 was 11.01 ms");
  EXPECT_EQ(promise->broken_by(result({1, 2, 3, 1000})), "max was 1000.00 ms");
  EXPECT_NE(promise->broken_by(result({})), "");
}

TEST(Promise, FailuresAndMessagesNotSent) {
  auto strict = Promise::parse("p99<10ms"), lenient = Promise::parse("mean<10ms,failed<30%");
  ASSERT_TRUE(strict);
  ASSERT_TRUE(lenient);
  EXPECT_NE(strict->broken_by(result({1, 2, 3}, 1)), "");
  EXPECT_EQ(lenient->broken_by(result({1, 2, 3}, 1)), "");
  EXPECT_NE(lenient->broken_by(result({1, 2}, 1)), "");
  EXPECT_EQ(strict->broken_by(result({1, 2, 3}, 0, 1)), "1 messages were due and not sent at the end");
}

TEST(Promise, BadTextsAreNamed) {
  for (const char* text : {"", "p99", "p99<", "p99<5", "p0<5ms", "p100<5ms", "px<5ms", "99<5ms", "failed<1%",
                           "failed<2", "p99<-5ms", "p99<0s", "p99<5ms,,", "mean<x", "p99<5ms,failed<100%"}) {
    auto promise = Promise::parse(text);
    EXPECT_FALSE(promise) << text;
    EXPECT_TRUE(promise || !promise.error().message.empty()) << text;
  }
}

}  // namespace
}  // namespace twinloft::mailbench
