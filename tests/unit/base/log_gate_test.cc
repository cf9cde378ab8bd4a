#include "twinloft/base/log_gate.h"

#include <gtest/gtest.h>

namespace twinloft {
namespace {

TEST(LogGate, TellsAFewAndHowManyMore) {
  LogGate gate;
  Instant now{5'000'000'000};
  testing::internal::CaptureStderr();
  for (int i = 0; i < 25; ++i) gate.put(LogLevel::error, now, "refused");
  EXPECT_EQ(gate.left_out(), 15u);
  gate.put(LogLevel::error, now + LogRate::period, "refused again");
  std::string out = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 11);
  EXPECT_NE(out.find("refused again (and 15 more before this)"), out.npos) << out;
  EXPECT_EQ(gate.left_out(), 0u);
}

TEST(LogGate, TellsAtItsEndWhatItHasLeftOut) {
  testing::internal::CaptureStderr();
  {
    LogGate gate;
    for (int i = 0; i < 25; ++i)
      gate.put(LogLevel::error, Instant{5'000'000'000}, "refused " + std::to_string(i));
  }
  std::string out = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 11);
  EXPECT_NE(out.find("refused 24 (and 14 more before this)"), out.npos) << out;
}

}  // namespace
}  // namespace twinloft
