// How a resync gives way to the clients: the rate's rule alone, then in the core.
#include "twinloft/spool-repl/core/pace.h"

#include <gtest/gtest.h>

#include "roles.h"

namespace twinloft::repl::core {
namespace {

using std::chrono::milliseconds;
constexpr std::uint64_t MiB = 1u << 20;

struct PaceTest : testing::Test {
  Pace pace{milliseconds(20), 4 * MiB};
  Instant now{1};

  // Intervals in which each request of this kind takes so long; what may be read is read.
  std::uint64_t run(int intervals, std::optional<Duration> took, bool working = true, Pace::Kind kind = Pace::Kind::flush) {
    std::uint64_t bytes = 0;
    for (int i = 0; i < intervals * 10; ++i) {
      now = now + Pace::interval / 10;
      if (took) pace.answered(kind, *took);
      pace.advance(now, working, std::nullopt);
      for (; working && pace.ready(); bytes += 256 << 10) pace.took(256 << 10);
    }
    return bytes;
  }
};

TEST_F(PaceTest, GoesFasterAndFasterWhileNobodyAsks) {
  std::uint64_t before = run(2, std::nullopt);
  for (int i = 0; i < 5; ++i) {
    std::uint64_t after = run(2, std::nullopt);
    EXPECT_GT(after, before);
    before = after;
  }
  EXPECT_FALSE(pace.held_to());
}

TEST_F(PaceTest, SlowsDownToTheFloorWhileRequestsTakeTooLong) {
  for (Pace::Kind kind : {Pace::Kind::flush, Pace::Kind::read}) {
    pace = Pace(milliseconds(20), 4 * MiB);
    run(10, std::nullopt);
    run(20, milliseconds(21), true, kind);
    EXPECT_EQ(pace.held_to(), 4 * MiB);
    std::uint64_t second = run(10, milliseconds(21), true, kind);
    EXPECT_GE(second, 4 * MiB - MiB / 2);
    EXPECT_LE(second, 4 * MiB + MiB / 2);
    run(10, milliseconds(19), true, kind);
    EXPECT_GT(*pace.held_to(), 4 * MiB);
    run(2, std::nullopt);
    EXPECT_FALSE(pace.held_to());
  }
}

// Quick requests of one kind do not outvote slow ones of the other.
TEST_F(PaceTest, EachKindCounts) {
  for (int i = 0; i < 300; ++i) {
    now = now + milliseconds(10);
    for (int k = 0; k < 50; ++k) pace.answered(Pace::Kind::read, milliseconds(0));
    pace.answered(Pace::Kind::flush, milliseconds(50));
    pace.advance(now, true, std::nullopt);
  }
  EXPECT_EQ(pace.held_to(), 4 * MiB);
}

TEST_F(PaceTest, AFlushWithoutAnAnswerCounts) {
  run(1, std::nullopt);
  Instant since = now;
  for (int i = 0; i < 20; ++i) now = now + Pace::interval, pace.advance(now, true, since);
  EXPECT_EQ(pace.held_to(), 4 * MiB);
}

// A slow disk is no reason to stand still: what counts is what the resync adds.
TEST_F(PaceTest, WhatWasUsualBeforeIsAllowedTwice) {
  run(30, milliseconds(100), false);
  run(10, milliseconds(150));
  EXPECT_FALSE(pace.held_to());
  run(20, milliseconds(250));
  EXPECT_EQ(pace.held_to(), 4 * MiB);
}

TEST_F(PaceTest, NextIsWhenItIsReadyAgain) {
  run(20, milliseconds(30));
  pace.took(10 * MiB);
  auto at = pace.next();
  ASSERT_TRUE(at);
  EXPECT_FALSE(pace.ready());
  pace.advance({at->ns - 1000}, true, std::nullopt);
  EXPECT_FALSE(pace.ready());
  pace.advance(*at, true, std::nullopt);
  EXPECT_TRUE(pace.ready());
}

TEST_F(PaceTest, WithoutATargetItNeverWaits) {
  pace = Pace(milliseconds(0), 4 * MiB);
  pace.took(1000 * MiB);
  EXPECT_TRUE(pace.ready());
  EXPECT_FALSE(pace.next());
}

// A full resync of 4 MiB beside a client whose flushes take 50 ms, and beside nobody.
struct ResyncPaceTest : RolesTest {
  Duration resync(bool busy) {
    nodes.clear();
    for (ReplicaId id : {1, 2}) {
      Config c = config_of(id, 2);
      c.on_peer_loss = OnPeerLoss::go_on;
      c.resync_latency_target = milliseconds(20);
      c.resync_rate_min = 1 * MiB;
      nodes.push_back(std::make_unique<Shell>(ShellOptions{.replica = id, .config = c, .seed = id}));
    }
    delivered.assign(2, 0);
    up.clear();
    EXPECT_TRUE(promote(1, true)->ok);
    fill(1, 0, 1000, 7);
    checkpoint(1);
    connect(1, 2);
    Instant begun = node(1).now();
    for (int i = 0; i < 2000 && !(status(node(1)).in_sync & set_of(2)); ++i) {
      node(1).held = [&](Disk kind) { return busy && kind == Disk::journal_write && i % 5 != 4; };
      if (busy && i % 5 == 0) write_flush(1, 1023);
      exchange();
      pass(milliseconds(10));
      held_to = std::max(held_to, status(node(1)).resync_held_to);
    }
    EXPECT_TRUE(status(node(1)).in_sync & set_of(2));
    EXPECT_EQ(node(1).data == node(2).data || busy, true);
    return node(1).now() - begun;
  }
  void pass(Duration d) {
    for (auto& n : nodes) n->pass_time(d);
  }
  std::uint64_t held_to = 0;
};

TEST_F(ResyncPaceTest, YieldsToFlushes) {
  Duration free = resync(false);
  EXPECT_EQ(held_to, 0u);
  Duration busy = resync(true);
  EXPECT_GT(held_to, 0u);
  EXPECT_GT(busy, 4 * free);
}

}  // namespace
}  // namespace twinloft::repl::core
