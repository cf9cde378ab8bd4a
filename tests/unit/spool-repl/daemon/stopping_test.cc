#include "stopping.h"

#include <gtest/gtest.h>

namespace twinloft::repl::daemon {
namespace {

using Next = Stopping::Next;

const Instant now{1'000'000};
const Status ok;
const Status in_use = fail(Errc::conflict, "/dev/loop3 is mounted");

core::VolumeStatus primary(bool failed = false, bool suspended = false, Lsn durable = Lsn{7}) {
  core::VolumeStatus s;
  s.role = core::Role::primary;
  s.failed = failed;
  s.suspended = suspended;
  s.waits_for = "replica 2";
  s.durable = durable;
  s.last = Lsn{7};
  return s;
}

// A stop in each of its states.
Stopping serving() {
  return {};
}
Stopping trying(bool force = false) {
  Stopping s;
  s.ask(force, false);
  return s;
}
Stopping refused() {
  Stopping s = trying();
  s.front_ends_stopped(in_use, now);
  return s;
}
Stopping forcing() {
  Stopping s = trying();
  s.ask(true, false);
  return s;
}
Stopping draining() {
  Stopping s = trying();
  s.front_ends_stopped(ok, now);
  return s;
}
Stopping ended() {
  Stopping s = draining();
  s.turn(primary(true), false, now);
  return s;
}

TEST(StoppingTest, WhatIsAskedForInEachState) {
  struct Row {
    const char* state;
    Stopping stopping;
    Next asked, asked_with_force;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"serving", serving(), Next::stop_front_ends, Next::stop_front_ends},
           {"trying", trying(), Next::nothing, Next::take_front_ends},
           {"trying with force", trying(true), Next::nothing, Next::take_front_ends},
           {"refused", refused(), Next::stop_front_ends, Next::stop_front_ends},
           {"forcing", forcing(), Next::nothing, Next::take_front_ends},
           {"draining", draining(), Next::nothing, Next::nothing},
           {"ended", ended(), Next::nothing, Next::nothing},
       }) {
    Stopping without = row.stopping, with = row.stopping;
    EXPECT_EQ(without.ask(false, false), row.asked) << row.state;
    EXPECT_EQ(with.ask(true, false), row.asked_with_force) << row.state;
  }
}

TEST(StoppingTest, WhatTheFrontEndsAnswerInEachState) {
  struct Row {
    const char* state;
    Stopping stopping;
    Next stopped, refused, taken, again;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"trying", trying(), Next::drain, Next::nothing, Next::drain, Next::nothing},
           {"trying with force", trying(true), Next::drain, Next::take_front_ends, Next::drain,
            Next::nothing},
           {"refused", refused(), Next::drain, Next::nothing, Next::drain, Next::stop_front_ends},
           {"forcing", forcing(), Next::drain, Next::nothing, Next::drain, Next::nothing},
           {"draining", draining(), Next::nothing, Next::nothing, Next::nothing, Next::nothing},
           {"ended", ended(), Next::nothing, Next::nothing, Next::nothing, Next::nothing},
       }) {
    Stopping a = row.stopping, b = row.stopping, c = row.stopping, d = row.stopping, e = row.stopping;
    EXPECT_EQ(a.front_ends_stopped(ok, now), row.stopped) << row.state;
    EXPECT_EQ(b.front_ends_stopped(in_use, now), row.refused) << row.state;
    EXPECT_EQ(c.front_ends_taken(now), row.taken) << row.state;
    EXPECT_EQ(d.try_again(false), row.again) << row.state;
    EXPECT_EQ(e.try_again(true), Next::nothing) << row.state << ": a change of role is using the front ends";
  }
}

TEST(StoppingTest, WhatHoldsInEachState) {
  struct Row {
    const char* state;
    Stopping stopping;
    bool asked, under_way, draining, ended;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"serving", serving(), false, false, false, false},
           {"trying", trying(), true, true, false, false},
           {"refused", refused(), true, false, false, false},
           {"forcing", forcing(), true, true, false, false},
           {"draining", draining(), true, true, true, false},
           {"ended", ended(), true, true, true, true},
       }) {
    EXPECT_EQ(row.stopping.is_asked(), row.asked) << row.state;
    EXPECT_EQ(row.stopping.is_under_way(), row.under_way) << row.state;
    EXPECT_EQ(row.stopping.is_draining(), row.draining) << row.state;
    EXPECT_EQ(row.stopping.is_ended(), row.ended) << row.state;
  }
}

TEST(StoppingTest, DrainsUntilAllIsHome) {
  Stopping s = draining();
  EXPECT_EQ(s.turn(primary(), true, now), Next::nothing) << "the flush is in flight";
  s.flushed();
  EXPECT_EQ(s.turn(primary(), false, now), Next::checkpoint) << "the records that the flush made durable";
  EXPECT_EQ(s.turn(primary(), false, now), Next::nothing);
  EXPECT_EQ(s.turn(primary(), true, now), Next::end);
  EXPECT_EQ(s.turn(primary(), true, now), Next::nothing) << "once";
}

TEST(StoppingTest, WhatEndsADrainEarly) {
  struct Row {
    const char* what;
    core::VolumeStatus status;
    Duration after;
    Next next;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"nothing", primary(), std::chrono::seconds(14), Next::nothing},
           {"time", primary(), std::chrono::seconds(15), Next::end},
           {"a failed volume", primary(true), Duration(0), Next::end},
           {"suspended, and all is durable here", primary(false, true), Duration(0), Next::end},
           {"suspended, and not all is durable", primary(false, true, Lsn{6}), Duration(0), Next::nothing},
       })
    EXPECT_EQ(draining().turn(row.status, false, now + row.after), row.next) << row.what;
}

TEST(StoppingTest, SaysWhatItWaitsFor) {
  constexpr Duration slow = Stopping::slow_request;
  auto waits = [](const Stopping& s, const core::VolumeStatus& status, Duration oldest = Duration(0)) {
    return s.waits_for(status, oldest);
  };
  EXPECT_EQ(waits(serving(), primary(false, true)), "");
  EXPECT_EQ(waits(trying(), primary()), "");
  EXPECT_EQ(waits(trying(), primary(), slow - Duration(1)), "");
  EXPECT_EQ(
      waits(trying(), primary(false, true)).find("the volume is suspended: writes wait for replica 2. "), 0u);
  EXPECT_EQ(
      waits(trying(), primary(), slow).find("requests of the device are not answered. A second SIGTERM"), 0u);
  EXPECT_EQ(waits(refused(), primary(false, true)),
            "/dev/loop3 is mounted. Unmount it first. A second request takes the device away from its users");
  Stopping again = refused();
  again.try_again(false);
  EXPECT_EQ(waits(again, primary()), waits(refused(), primary())) << "also during the next attempt";
  EXPECT_EQ(waits(forcing(), primary(false, true), slow), "");
  EXPECT_EQ(waits(draining(), primary(false, true), slow), "");
}

// After force, a late refusal does not make the stop wait again.
TEST(StoppingTest, ALateRefusalDoesNotUndoForce) {
  Stopping s = forcing();
  EXPECT_EQ(s.front_ends_stopped(in_use, now), Next::nothing);
  EXPECT_TRUE(s.is_under_way());
  EXPECT_EQ(s.try_again(false), Next::nothing);
  EXPECT_EQ(s.front_ends_taken(now), Next::drain);
}

TEST(StoppingTest, ForceFailsAVolumeAndThatIsNoFailureOfItsOwn) {
  for (bool failed_before : {false, true}) {
    Stopping s;
    s.ask(false, failed_before);
    EXPECT_TRUE(s.has_failed_by_itself());
    s.ask(true, true);
    EXPECT_EQ(s.has_failed_by_itself(), failed_before);
  }
}

}  // namespace
}  // namespace twinloft::repl::daemon
