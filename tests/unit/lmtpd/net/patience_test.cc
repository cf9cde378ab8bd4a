// The time limits for clients.
#include "patience.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

constexpr Duration second = std::chrono::seconds(1);
constexpr Instant t0{5'000'000'000};

std::string text_of(const Patience::Verdict& verdict) {
  if (const auto* wait = std::get_if<Patience::Wait>(&verdict))
    return "wait " + std::to_string(wait->duration / second);
  return std::holds_alternative<Patience::Idle>(verdict) ? "idle" : "too long";
}

class PatienceTest : public testing::Test {
 protected:
  std::string look(int seconds, bool ours = false) const {
    return text_of(patience_.look(t0 + seconds * second, ours));
  }
  Patience patience_{{.idle = 10 * second, .transaction = 25 * second}, t0};
};

TEST_F(PatienceTest, AClientIsIdleAfterItsSilence) {
  EXPECT_EQ(look(0), "wait 10");
  EXPECT_EQ(look(7), "wait 3");
  EXPECT_EQ(look(10), "idle");
  patience_.note_progress(t0 + 9 * second);
  EXPECT_EQ(look(10), "wait 9");
  EXPECT_EQ(look(19), "idle");
  EXPECT_EQ(patience_.silence(t0 + 12 * second), 3 * second);
}

TEST_F(PatienceTest, ATransactionMayTakeTooLongHoweverMuchIsSent) {
  patience_.note_transaction(1, t0 + 1 * second);
  for (int s = 1; s <= 20; s += 5) {
    patience_.note_progress(t0 + s * second);
    patience_.note_transaction(1, t0 + s * second);
  }
  patience_.note_progress(t0 + 20 * second);
  EXPECT_EQ(look(20), "wait 6") << "the earlier of the two limits";
  EXPECT_EQ(look(26), "too long");
  patience_.note_progress(t0 + 26 * second);
  EXPECT_EQ(look(26), "too long");
}

TEST_F(PatienceTest, EachTransactionHasItsOwnTime) {
  patience_.note_transaction(1, t0);
  patience_.note_progress(t0 + 24 * second);
  patience_.note_transaction(2, t0 + 24 * second);
  EXPECT_EQ(look(26), "wait 8");
  patience_.note_transaction(0, t0 + 26 * second);
  patience_.note_progress(t0 + 90 * second);
  EXPECT_EQ(look(91), "wait 9") << "no limit applies";
}

TEST_F(PatienceTest, NoTimeRunsWhileThisServerIsWaitedFor) {
  patience_.note_transaction(1, t0);
  EXPECT_EQ(look(500, true), "wait 10");
  EXPECT_EQ(look(500, false), "too long");
}

}  // namespace
}  // namespace twinloft::lmtpd
