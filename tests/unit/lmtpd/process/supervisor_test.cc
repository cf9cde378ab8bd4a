// The supervisor's orders when a server process is ready, ends, or has to leave.
#include "twinloft/lmtpd/process/supervisor.h"

#include <gtest/gtest.h>
#include <sysexits.h>

namespace twinloft::lmtpd {
namespace {

constexpr Instant t0{1'000'000};
constexpr Ending good{}, crash{0, 11}, refused{EX_CONFIG, 0};

class SupervisorTest : public testing::Test {
 protected:
  // A server process that serves.
  ServerId serving() {
    ServerId id = s.begin().start->id;
    EXPECT_EQ(s.ready(id, t0).adopt, id);
    return id;
  }
  static char letter(ServerCommand command) {
    return command == ServerCommand::drain ? 'd' : command == ServerCommand::stop ? 't' : 'a';
  }
  static std::string told(const Orders& o) {
    std::string out;
    for (const Orders::Tell& t : o.tell) out += std::to_string(t.id) + letter(t.command) + " ";
    return out;
  }
  // Whether no process is started within the longest first pause.
  static bool starts_nothing(Supervisor& supervisor) {
    return !supervisor.tick(t0 + Supervisor::start_patience / 2).start;
  }
  Supervisor s;
};

TEST_F(SupervisorTest, AFirstProcessThatRefusesIsTheEnd) {
  ServerId id = s.begin().start->id;
  EXPECT_EQ(s.ended(id, refused, t0).exit, EX_CONFIG);
  Supervisor other;
  Orders o = other.ended(other.begin().start->id, crash, t0);
  EXPECT_EQ(o.exit, EX_SOFTWARE);
  EXPECT_FALSE(o.errors.empty());
}

TEST_F(SupervisorTest, AReloadReplacesTheOldOneWhenTheNewOneIsReady) {
  ServerId old = serving();
  Orders o = s.reload(t0);
  ASSERT_TRUE(o.start);
  EXPECT_TRUE(o.start->reread);
  EXPECT_EQ(told(o), "") << "the old process serves until then";
  ServerId next = o.start->id;
  o = s.ready(next, t0);
  EXPECT_EQ(o.adopt, next);
  EXPECT_EQ(told(o), "1d ");
  o = s.ended(old, good, t0);
  EXPECT_FALSE(o.exit || o.start);
  EXPECT_TRUE(o.errors.empty());
}

TEST_F(SupervisorTest, ARefusedReloadLeavesTheOldOne) {
  serving();
  ServerId next = s.reload(t0).start->id;
  Orders o = s.ended(next, refused, t0);
  EXPECT_EQ(told(o), "");
  EXPECT_FALSE(o.exit || o.start || o.adopt);
  EXPECT_EQ(o.errors.size(), 1u);
  EXPECT_TRUE(s.reload(t0).start);
}

TEST_F(SupervisorTest, ReloadsInQuickSuccessionAreOneMore) {
  serving();
  ServerId second = s.reload(t0).start->id;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(s.reload(t0).start);
  Orders o = s.ready(second, t0);
  ASSERT_TRUE(o.start);
  EXPECT_TRUE(o.start->reread);
  EXPECT_EQ(told(o), "1d ");
  o = s.ended(o.start->id, refused, t0);
  EXPECT_FALSE(o.start);
  // Also after a refused reload.
  ServerId fourth = s.reload(t0).start->id;
  EXPECT_FALSE(s.reload(t0).start);
  EXPECT_TRUE(s.ended(fourth, refused, t0).start);
}

TEST_F(SupervisorTest, OneThatEndsByItselfIsReplacedAfterAPause) {
  ServerId id = serving();
  Orders o = s.ended(id, crash, t0);
  EXPECT_FALSE(o.exit || o.start);
  EXPECT_EQ(o.errors.size(), 1u);
  ASSERT_TRUE(s.next_tick());
  EXPECT_FALSE(s.tick(t0).start);
  o = s.tick(*s.next_tick());
  ASSERT_TRUE(o.start);
  EXPECT_FALSE(o.start->reread) << "a wrong file must not prevent the restart";
  EXPECT_TRUE(starts_nothing(s));
  // Nor does a failed replacement end the supervisor.
  o = s.ended(o.start->id, refused, t0);
  EXPECT_FALSE(o.exit);
  o = s.tick(*s.next_tick());
  EXPECT_EQ(s.ready(o.start->id, t0).adopt, o.start->id);
}

TEST_F(SupervisorTest, OneThatEndsWhileItsSuccessorStartsIsReplacedByThat) {
  ServerId old = serving();
  ServerId next = s.reload(t0).start->id;
  s.ended(old, crash, t0);
  EXPECT_TRUE(starts_nothing(s));
  EXPECT_EQ(told(s.ready(next, t0)), "");
}

TEST_F(SupervisorTest, AReloadDuringThePauseStartsAtOnce) {
  s.ended(serving(), crash, t0);
  EXPECT_TRUE(s.reload(t0).start->reread);
  EXPECT_TRUE(starts_nothing(s));
}

// The new configuration is wrong, and the old process has ended meanwhile.
TEST_F(SupervisorTest, WithNoneLeftTheOldConfigurationIsTakenAgain) {
  ServerId old = serving();
  ServerId next = s.reload(t0).start->id;
  s.ended(old, crash, t0);
  Orders o = s.ended(next, refused, t0);
  EXPECT_FALSE(o.exit);
  ASSERT_TRUE(s.next_tick());
  EXPECT_FALSE(s.tick(*s.next_tick()).start->reread);
}

TEST_F(SupervisorTest, StopTellsAllAndEndsWithTheLast) {
  ServerId old = serving();
  ServerId next = s.reload(t0).start->id;
  s.ready(next, t0);
  ServerId third = s.reload(t0).start->id;
  Orders o = s.stop(t0);
  EXPECT_EQ(told(o), "1t 2t ");
  EXPECT_EQ(o.kill, std::vector<ServerId>{third});
  EXPECT_FALSE(s.reload(t0).start) << "the process is leaving";
  EXPECT_FALSE(s.ready(third, t0).adopt);
  EXPECT_EQ(told(s.stop(t0)), "1a 2a ");
  EXPECT_FALSE(s.ended(old, good, t0).exit);
  EXPECT_FALSE(s.ended(third, Ending{0, 9}, t0).exit);
  EXPECT_EQ(s.ended(next, good, t0).exit, 0);
}

TEST_F(SupervisorTest, WhatWasLeftShowsInTheExitCode) {
  ServerId id = serving();
  s.stop(t0);
  EXPECT_EQ(s.ended(id, Ending{EX_TEMPFAIL, 0}, t0).exit, EX_TEMPFAIL);
}

TEST_F(SupervisorTest, StopDuringThePauseIsTheEnd) {
  s.ended(serving(), crash, t0);
  EXPECT_EQ(s.stop(t0).exit, 0);
  EXPECT_FALSE(s.next_tick());
}

TEST_F(SupervisorTest, OneThatAsksForItIsReplacedOnce) {
  ServerId id = serving();
  s.needs_replacement(id, t0);
  s.needs_replacement(id, t0);
  ASSERT_TRUE(s.next_tick());
  Orders o = s.tick(*s.next_tick());
  ASSERT_TRUE(o.start);
  EXPECT_FALSE(o.start->reread);
  EXPECT_EQ(told(s.ready(o.start->id, t0)), "1d ");
  s.needs_replacement(id, t0);
  EXPECT_FALSE(s.next_tick()) << "the process drains";
  s.stop(t0);
  s.needs_replacement(o.start->id, t0);
  EXPECT_FALSE(s.next_tick());
}

// A replacement that does not come to serve does not count as a refused reload.
TEST_F(SupervisorTest, ACrippledOneIsReplacedUntilThatWorks) {
  for (bool before : {false, true}) {
    Supervisor v;
    ServerId id = v.begin().start->id;
    v.ready(id, t0);
    ServerId next;
    if (before) {  // the report arrives during a reload
      next = v.reload(t0).start->id;
      v.needs_replacement(id, t0);
      EXPECT_TRUE(starts_nothing(v));
    } else {
      v.needs_replacement(id, t0);
      next = v.tick(*v.next_tick()).start->id;
    }
    v.ended(next, refused, t0);
    ASSERT_TRUE(v.next_tick());
    Orders o = v.tick(*v.next_tick());
    ASSERT_TRUE(o.start);
    EXPECT_EQ(told(v.ready(o.start->id, t0)), "1d ");
    EXPECT_FALSE(v.next_tick());
  }
}

// Ticks whenever a look is due, from `at` on, for that time. Returns the first orders that kill a process.
Orders look_on(Supervisor& s, Instant at, Duration time) {
  for (Instant end = at + time; at < end; at = *s.next_look())
    if (Orders o = s.tick(at); !o.kill.empty()) return o;
  return {};
}

TEST_F(SupervisorTest, OneThatGivesNoSignOfLifeIsKilledAndReplaced) {
  ServerId id = serving();
  ASSERT_TRUE(s.tick(t0).kill.empty());
  ASSERT_TRUE(s.next_look()) << "a process that hangs causes no event";
  Orders o = look_on(s, t0, 2 * Supervisor::silence_max);
  EXPECT_EQ(o.kill, std::vector<ServerId>{id});
  ASSERT_EQ(o.errors.size(), 1u);
  EXPECT_NE(o.errors[0].find("no sign of life for 60 s"), std::string::npos);
  // Also if the killed process does not end, because its disk does not answer.
  o = s.tick(*s.next_tick());
  ASSERT_TRUE(o.start);
  EXPECT_FALSE(o.start->reread);
  EXPECT_EQ(s.ready(o.start->id, t0 + 2 * Supervisor::silence_max).adopt, o.start->id);
  EXPECT_FALSE(s.ended(id, Ending{0, 9}, t0 + 3 * Supervisor::silence_max).start);
  EXPECT_FALSE(s.next_tick());
}

TEST_F(SupervisorTest, OneThatGivesSignsOfLifeIsLeftAlone) {
  ServerId id = serving();
  s.tick(t0);
  for (Instant at = t0; at < t0 + 10 * Supervisor::silence_max; at = *s.next_look()) {
    s.heard(id, at);
    EXPECT_TRUE(s.tick(at).kill.empty());
  }
}

// The machine or the supervisor has slept, so no process could be heard.
TEST_F(SupervisorTest, TimeInWhichItDidNotLookCountsForNobody) {
  serving();
  s.tick(t0);
  Instant later = t0 + 10 * Supervisor::silence_max;
  EXPECT_TRUE(s.tick(later).kill.empty());
  EXPECT_FALSE(look_on(s, later, 2 * Supervisor::silence_max).kill.empty());
}

TEST_F(SupervisorTest, OneThatLeavesOrStartsNeedsToGiveNone) {
  ServerId id = serving();
  s.tick(t0);
  s.leaves(id);
  EXPECT_FALSE(s.next_look());
  EXPECT_TRUE(s.tick(t0 + 3 * Supervisor::silence_max).kill.empty());
  Supervisor other;
  other.begin();
  other.tick(t0);
  EXPECT_FALSE(other.next_look());
}

TEST_F(SupervisorTest, PausesGrowWhereEachEndsSoonAfterTheLast) {
  Instant now = t0;
  ServerId id = s.begin().start->id;
  Duration last{0};
  for (int i = 0; i < 10; ++i) {
    s.ready(id, now);
    s.ended(id, crash, now);
    Duration pause = *s.next_tick() - now;
    EXPECT_TRUE(pause > last || pause == Supervisor::restart_pause_max) << i;
    last = pause;
    now = *s.next_tick();
    id = s.tick(now).start->id;
  }
  EXPECT_EQ(last, Supervisor::restart_pause_max);
  s.ready(id, now);
  now = now + Supervisor::restart_pause_max;
  s.ended(id, crash, now);
  EXPECT_EQ(*s.next_tick() - now, Supervisor::restart_pause);
}

TEST_F(SupervisorTest, AReloadWhileNoneComesToServe) {
  s.ended(serving(), crash, t0);
  ServerId id = s.tick(*s.next_tick()).start->id;
  EXPECT_FALSE(s.reload(t0).start);
  Orders o = s.ended(id, refused, t0);
  ASSERT_TRUE(o.start);
  EXPECT_TRUE(o.start->reread);
}

// A start that hangs would block all later starts. Causes: a user database without answers, a suspended
// spool.
TEST_F(SupervisorTest, AStartThatDoesNotComeToAnEndIsKilled) {
  serving();
  ServerId next = s.reload(t0).start->id;
  ASSERT_EQ(s.next_tick(), t0 + Supervisor::start_patience);
  EXPECT_TRUE(s.tick(t0).kill.empty());
  Orders o = s.tick(*s.next_tick());
  EXPECT_EQ(o.kill, std::vector<ServerId>{next});
  EXPECT_EQ(o.errors.size(), 1u);
  EXPECT_FALSE(s.reload(t0).start) << "the process has not ended yet";
  o = s.ended(next, Ending{0, 9}, t0);
  EXPECT_FALSE(o.exit);
  ASSERT_TRUE(o.start);
  EXPECT_TRUE(s.ready(o.start->id, t0).adopt);
  EXPECT_FALSE(s.next_tick()) << "the start was in time";
}

TEST_F(SupervisorTest, AReplacementThatDoesNotComeToAnEndIsTriedAgain) {
  s.ended(serving(), crash, t0);
  Instant now = *s.next_tick();
  ServerId next = s.tick(now).start->id;
  EXPECT_EQ(s.next_tick(), now + Supervisor::start_patience);
  now = *s.next_tick();
  EXPECT_EQ(s.tick(now).kill, std::vector<ServerId>{next});
  s.ended(next, Ending{0, 9}, now);
  EXPECT_TRUE(s.tick(*s.next_tick()).start);
}

TEST_F(SupervisorTest, AFirstStartHasNoBound) {
  ServerId id = s.begin().start->id;
  EXPECT_FALSE(s.next_tick());
  EXPECT_TRUE(s.ready(id, t0).adopt);
}

TEST_F(SupervisorTest, WhoDoesNotLeaveIsKilled) {
  ServerId id = serving();
  s.stop(t0);
  EXPECT_FALSE(s.next_tick()) << "deliveries may take long";
  s.stop(t0);
  ASSERT_TRUE(s.next_tick());
  EXPECT_TRUE(s.tick(t0).kill.empty());
  EXPECT_EQ(s.tick(*s.next_tick()).kill, std::vector<ServerId>{id});
  EXPECT_EQ(s.ended(id, Ending{0, 9}, t0).exit, EX_TEMPFAIL);
  Supervisor other;
  id = other.begin().start->id;
  other.ready(id, t0);
  other.deaf(id, t0);
  EXPECT_EQ(other.tick(*other.next_tick()).kill, std::vector<ServerId>{id});
}

}  // namespace
}  // namespace twinloft::lmtpd
