#include "twinloft/mailbench/schedule.h"

#include <gtest/gtest.h>

namespace twinloft::mailbench {
namespace {

using namespace std::chrono_literals;
constexpr Instant kStart{1'000'000'000'000};

TEST(Schedule, ClosedLoopCountsMessages) {
  Schedule s({.messages = 2}, kStart);
  auto first = s.take(kStart + 5s);
  ASSERT_TRUE(std::holds_alternative<Schedule::Grant>(first));
  EXPECT_EQ(std::get<Schedule::Grant>(first).number, 0u);
  EXPECT_EQ(std::get<Schedule::Grant>(first).intended, kStart + 5s);
  EXPECT_FALSE(s.over(kStart));
  EXPECT_EQ(std::get<Schedule::Grant>(s.take(kStart)).number, 1u);
  EXPECT_TRUE(std::holds_alternative<Schedule::Over>(s.take(kStart)));
  EXPECT_TRUE(s.over(kStart));
}

TEST(Schedule, EndsWithTheWindow) {
  Schedule s({.duration = 10s, .warmup = 2s}, kStart);
  EXPECT_EQ(s.window_start(), kStart + 2s);
  EXPECT_EQ(s.window_end(), kStart + 12s);
  EXPECT_TRUE(std::holds_alternative<Schedule::Grant>(s.take(kStart + 11999ms)));
  EXPECT_TRUE(std::holds_alternative<Schedule::Over>(s.take(kStart + 12s)));
}

TEST(Schedule, OpenLoopKeepsItsTimesWhoeverIsLate) {
  Schedule s({.rate = 10.0, .duration = 10s}, kStart);
  EXPECT_EQ(std::get<Schedule::Grant>(s.take(kStart)).intended, kStart);
  auto later = s.take(kStart);
  ASSERT_TRUE(std::holds_alternative<Schedule::Later>(later));
  EXPECT_EQ(std::get<Schedule::Later>(later).at, kStart + 100ms);
  // All clients were busy for a second. Message 1 is granted late, with its original time.
  EXPECT_EQ(std::get<Schedule::Grant>(s.take(kStart + 1s)).intended, kStart + 100ms);
  EXPECT_EQ(s.behind(kStart + 1s), 8u);
}

TEST(Schedule, StopEndsIt) {
  Schedule s({.duration = 10s}, kStart);
  s.stop();
  EXPECT_TRUE(std::holds_alternative<Schedule::Over>(s.take(kStart)));
  EXPECT_TRUE(s.over(kStart));
}

TEST(Schedule, AnOpenLoopGivesWhatIsLateAfterTheWindow) {
  Schedule s({.rate = 10.0, .duration = 1s}, kStart);
  EXPECT_FALSE(s.ended(kStart + 999ms));
  EXPECT_TRUE(s.ended(kStart + 1s));
  EXPECT_FALSE(s.over(kStart + 1s));
  for (int i = 0; i < 10; ++i) {
    auto grant = s.take(kStart + 5s);
    ASSERT_TRUE(std::holds_alternative<Schedule::Grant>(grant)) << i;
    EXPECT_EQ(std::get<Schedule::Grant>(grant).intended, kStart + 100ms * i);
  }
  EXPECT_TRUE(std::holds_alternative<Schedule::Over>(s.take(kStart + 5s)));
  EXPECT_TRUE(s.over(kStart + 5s));
}

TEST(Schedule, TheWindowEndsWithASignal) {
  Schedule s({.rate = 10.0, .duration = 100s}, kStart);
  (void)s.take(kStart);
  s.stop();
  EXPECT_TRUE(s.ended(kStart + 2s));
  EXPECT_TRUE(s.ended(kStart + 3s));
  EXPECT_EQ(s.window_end(), kStart + 2s);
  EXPECT_EQ(s.behind(kStart + 50s), 19u);
  EXPECT_TRUE(std::holds_alternative<Schedule::Over>(s.take(kStart + 3s)));
}

}  // namespace
}  // namespace twinloft::mailbench
