#include "twinloft/lmtpd/policy/spool_health.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace twinloft::lmtpd {
namespace {

using State = SpoolHealth::State;
using Told = VolumeTold::State;

constexpr SpoolRules rules;
constexpr Instant start{1'000'000'000'000};

Instant after(Duration time) {
  return start + time;
}
SpoolLook fine() {
  return {.bytes = 1u << 30, .free_bytes = 1u << 29, .inodes = 100'000, .free_inodes = 50'000};
}
SpoolLook with(Errc code, int sys) {
  SpoolLook look = fine();
  look.trouble = Error{code, "x", sys};
  return look;
}
std::optional<int> code_of(const SpoolHealth& health, Duration age, bool authenticated = false) {
  auto reply = refusal_of_spool(health, rules, after(age), authenticated);
  return reply ? std::optional(reply->code) : std::nullopt;
}

TEST(SpoolHealth, ByWhatWasSeen) {
  auto seen = [](const SpoolLook& look) { return health_of(look, {}, rules, start).state; };
  EXPECT_EQ(seen(fine()), State::serving);
  EXPECT_EQ(seen(with(Errc::unavailable, 0)), State::not_mounted);
  EXPECT_EQ(seen(with(Errc::unavailable, ENOENT)), State::not_mounted);
  EXPECT_EQ(seen(with(Errc::io, EIO)), State::failed);
  EXPECT_EQ(seen(with(Errc::unavailable, EIO)), State::failed);
  EXPECT_EQ(seen(with(Errc::unavailable, ENOTCONN)), State::failed);
  EXPECT_EQ(seen(with(Errc::exhausted, EMFILE)), State::serving) << "the process lacks descriptors";
  EXPECT_EQ(seen(with(Errc::io, EROFS)), State::read_only);
  EXPECT_EQ(seen(with(Errc::io, ENOSPC)), State::full);
  SpoolLook look = fine();
  look.read_only = true;
  EXPECT_EQ(seen(look), State::read_only);
}

TEST(SpoolHealth, BeforeTheFirstLookTheSpoolIsNotFull) {
  SpoolRules these;
  these.reserve_bytes = 1u << 30;
  EXPECT_EQ(health_of({}, {}, these, start).state, State::serving);
  EXPECT_EQ(health_of({}, {VolumeTold::State::failed}, these, start).state, State::failed);
}

// A hundredth of a small file system, and little of a large one.
TEST(SpoolHealth, TheReserveIsKeptFree) {
  constexpr std::uint64_t mib = 1u << 20;
  struct Row {
    std::uint64_t bytes, inodes;
    std::optional<std::uint64_t> configured;
    std::uint64_t reserve, reserve_inodes;
  };
  for (const Row& row : {Row{100 * mib, 5000, {}, mib, 50}, Row{100'000 * mib, 5'000'000, {}, 64 * mib, 1000},
                         Row{100 * mib, 0, 10 * mib, 10 * mib, 0}, Row{100 * mib, 0, 0, 0, 0}}) {
    SpoolRules these;
    these.reserve_bytes = row.configured;
    auto state = [&](std::uint64_t free, std::uint64_t free_inodes) {
      return health_of(
                 {.bytes = row.bytes, .free_bytes = free, .inodes = row.inodes, .free_inodes = free_inodes},
                 {}, these, start)
          .state;
    };
    EXPECT_EQ(state(row.reserve, row.reserve_inodes), State::serving);
    if (row.reserve > 0) {
      EXPECT_EQ(state(row.reserve - 1, row.reserve_inodes), State::full);
    }
    if (row.reserve_inodes > 0) {
      EXPECT_EQ(state(row.reserve, row.reserve_inodes - 1), State::full);
    }
  }
}

TEST(SpoolHealth, ByWhatSpoolReplTells) {
  auto told = [](Told state) {
    return health_of(fine(), {state, start}, rules, after(std::chrono::hours(1)));
  };
  EXPECT_EQ(told(Told::unknown).state, State::serving);
  EXPECT_EQ(told(Told::serving).state, State::serving);
  EXPECT_EQ(told(Told::failed).state, State::failed);
  EXPECT_EQ(told(Told::suspended), (SpoolHealth{State::suspended, start}));
  EXPECT_EQ(told(Told::stalled), (SpoolHealth{State::suspended, start}));
}

// A look at a suspended volume hangs, and a look from before says nothing about the present.
TEST(SpoolHealth, ALookThatHangsCountsAsASuspension) {
  SpoolLook look = with(Errc::io, EIO);
  look.hangs_since = start;
  EXPECT_EQ(health_of(look, {}, rules, after(rules.hangs_for)), (SpoolHealth{State::suspended, start}));
  EXPECT_EQ(health_of(look, {}, rules, after(rules.hangs_for - Duration(1))).state, State::failed);
  EXPECT_EQ(health_of(look, {Told::failed, start}, rules, after(rules.hangs_for)).state, State::failed);
}

TEST(SpoolHealth, ASuspendedSpoolTakesMailForAWhile) {
  SpoolHealth health{State::suspended, start};
  EXPECT_EQ(code_of(health, Duration(0)), std::nullopt);
  EXPECT_EQ(code_of(health, rules.suspended_for - Duration(1)), std::nullopt);
  auto reply = refusal_of_spool(health, rules, after(rules.suspended_for), false);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->code, 451);
  EXPECT_EQ(reply->enhanced, "4.3.2");
  EXPECT_EQ(code_of(health, std::chrono::hours(24), true), std::nullopt) << "an authenticated sender";
}

TEST(SpoolHealth, EveryOtherTroubleIsTemporaryForAll) {
  for (State state : {State::not_mounted, State::failed, State::read_only, State::full})
    for (bool authenticated : {false, true}) {
      auto reply = refusal_of_spool({state, {}}, rules, start, authenticated);
      ASSERT_TRUE(reply);
      EXPECT_EQ(reply->code, 451);
      EXPECT_EQ(reply->enhanced, "4.3.1");
    }
}

}  // namespace
}  // namespace twinloft::lmtpd
