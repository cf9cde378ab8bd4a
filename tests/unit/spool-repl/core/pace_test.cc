// How a resync gives way to the clients: the rule of the rate alone, then within the core.
#include "twinloft/spool-repl/core/pace.h"

#include <gtest/gtest.h>

#include "roles.h"

namespace twinloft::repl::core {
namespace {

using std::chrono::milliseconds;
constexpr std::uint64_t MiB = 1u << 20;
constexpr auto flush = Pace::Kind::flush, read = Pace::Kind::read;

struct PaceTest : testing::Test {
  Pace pace{milliseconds(20), 4 * MiB};
  Instant now{1};
  Pace::Waiting waiting;

  void step(Duration d, bool working = true) {
    now = now + d;
    if (pace.advance(now, working)) pace.judge(waiting);
  }
  std::uint64_t take() {
    std::uint64_t bytes = 0;
    for (; pace.ready(); bytes += 256 << 10) pace.took(256 << 10);
    return bytes;
  }
  // Runs intervals in which each request of this kind takes that long. The resync reads as much as it may.
  std::uint64_t run(int intervals, std::optional<Duration> took, bool working = true,
                    Pace::Kind kind = flush) {
    std::uint64_t bytes = 0;
    for (int i = 0; i < intervals * 10; ++i) {
      if (took) pace.answered(kind, *took);
      step(Pace::interval / 10, working);
      if (working) bytes += take();
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
  for (Pace::Kind kind : {flush, read}) {
    pace = Pace(milliseconds(20), 4 * MiB);
    run(10, milliseconds(5), false, kind);
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

TEST_F(PaceTest, TheSlowestRateIsSomethingStill) {
  pace = Pace(milliseconds(20), 64 << 10);
  run(10, milliseconds(5), false);
  run(100, milliseconds(100));
  EXPECT_EQ(pace.held_to(), 64u << 10);
  std::uint64_t bytes = 0;
  for (int i = 0; i < 3'000'000; ++i) {  // half a minute, in steps of 10 microseconds
    pace.answered(flush, milliseconds(100));
    step(std::chrono::microseconds(10));
    bytes += take();
  }
  EXPECT_GT(bytes, MiB);
}

// The rate falls at once, because it never rose far above the rate in use.
TEST_F(PaceTest, GoesNoFurtherUpThanWhatIsTaken) {
  run(10, milliseconds(5), false);
  for (int i = 0; i < 50; ++i) {
    step(Pace::interval);
    if (pace.ready()) pace.took(2 * MiB);  // the disk delivers only 20 MiB/s
  }
  run(4, milliseconds(100));
  EXPECT_LE(*pace.held_to(), 5 * MiB);
}

// Quick requests of one kind do not hide slow requests of the other.
TEST_F(PaceTest, EachKindCounts) {
  for (int i = 0; i < 100; ++i) {
    for (int k = 0; k < 50; ++k) pace.answered(read, milliseconds(0));
    pace.answered(flush, milliseconds(50));
    step(milliseconds(10));
    take();
  }
  EXPECT_EQ(pace.held_to(), 4 * MiB);
}

TEST_F(PaceTest, WhatHasNoAnswerCounts) {
  for (Pace::Kind kind : {flush, read}) {
    pace = Pace(milliseconds(20), 4 * MiB);
    waiting = {};
    run(1, std::nullopt);
    waiting.since[static_cast<std::size_t>(kind)] = now;
    run(9, std::nullopt);
    EXPECT_EQ(pace.held_to(), 4 * MiB);
  }
}

// A slow disk alone does not throttle a resync. The added latency counts.
TEST_F(PaceTest, WhatWasUsualBeforeIsAllowedTwice) {
  run(30, milliseconds(100), false);
  run(10, milliseconds(150));
  EXPECT_FALSE(pace.held_to());
  run(30, milliseconds(250));
  EXPECT_EQ(pace.held_to(), 4 * MiB);
}

TEST_F(PaceTest, WhatIsUsualIsLearntFromARest) {
  run(9, milliseconds(30));
  EXPECT_EQ(pace.held_to(), 4 * MiB);
  std::uint64_t nothing = 0, before = 0;
  for (int i = 0; i < 20; ++i, before = run(1, milliseconds(30))) nothing += before == 0 && i > 0;
  EXPECT_GE(nothing, 2u);
  run(30, milliseconds(30));
  EXPECT_GT(pace.held_to().value_or(Pace::rate_max), 100 * MiB) << "requests take 30 ms anyway";
}

// After an outage of minutes, all requests are answered at once. Their time does not count as usual.
TEST_F(PaceTest, OneThatWaitedLongChangesLittle) {
  run(30, milliseconds(15), false);
  run(1, std::chrono::minutes(5), false);
  run(20, milliseconds(60));
  EXPECT_EQ(pace.held_to(), 4 * MiB);
}

TEST_F(PaceTest, NextIsWhenItIsReadyAgain) {
  run(9, milliseconds(30));
  take();
  pace.took(MiB / 8);
  auto at = pace.next();
  ASSERT_TRUE(at);
  pace.advance({at->ns - 1000}, true);
  EXPECT_FALSE(pace.ready());
  pace.advance(*at, true);
  EXPECT_TRUE(pace.ready());
  EXPECT_FALSE(pace.next());
}

TEST_F(PaceTest, WithoutATargetItNeverWaits) {
  pace = Pace(milliseconds(0), 4 * MiB);
  for (int i = 0; i < 20; ++i) pace.answered(flush, milliseconds(100)), step(Pace::interval);
  pace.took(1000 * MiB);
  EXPECT_TRUE(pace.ready());
  EXPECT_FALSE(pace.next() || pace.held_to());
}

// ---- in the core

struct ResyncPaceTest : RolesTest {
  std::uint64_t held_to = 0;

  // Replica 1 has 4 MiB, and the other replicas are empty.
  void make_source(std::size_t count, OnPeerLoss loss = OnPeerLoss::go_on) {
    nodes.clear();
    for (ReplicaId id = 1; id <= count; ++id) {
      Config c = config_of(id, count);
      c.on_peer_loss = loss;
      c.resync_latency_target = milliseconds(20);
      c.resync_rate_min = 1 * MiB;
      nodes.push_back(std::make_unique<Shell>(ShellOptions{.replica = id, .config = c, .seed = id}));
    }
    delivered.assign(count, 0);
    up.clear();
    ASSERT_TRUE(promote(1, true)->ok);
    fill(1, 0, 1000, 7);
    checkpoint(1);
  }
  void pass(Duration d) {
    for (auto& n : nodes) n->pass_time(d);
  }
  enum class Client { none, flushes, reads };
  // Runs until all replicas are in sync, with a client whose requests take 50 ms. Returns the time.
  Duration resync(Client client) {
    std::vector<std::byte> read_into(2 * block_size);
    ReplicaSet all = 0;
    for (ReplicaId id = 1; id <= nodes.size(); ++id) all |= set_of(id);
    for (ReplicaId id = 2; id <= nodes.size(); ++id) connect(1, id);
    Instant begun = node(1).now();
    for (int i = 0; i < 5000 && status(node(1)).in_sync != all; ++i) {
      Disk slow = client == Client::flushes ? Disk::journal_write : Disk::home_read;
      node(1).held = [=](Disk kind) { return client != Client::none && kind == slow && i % 5 != 4; };
      if (client == Client::flushes && i % 5 == 0) write_flush(1, 1023);
      if (client == Client::reads && i % 5 == 0)
        node(1).submit(ClientOp::read, 0, block_size, read_into.data());
      exchange();
      pass(milliseconds(10));
      held_to = std::max(held_to, status(node(1)).resync_held_to);
    }
    EXPECT_EQ(status(node(1)).in_sync, all);
    node(1).held = nullptr;
    for (ReplicaId id = 1; id <= nodes.size(); ++id) checkpoint(id);
    for (ReplicaId id = 2; id <= nodes.size(); ++id) EXPECT_EQ(node(1).data, node(id).data);
    return node(1).now() - begun;
  }
};

TEST_F(ResyncPaceTest, YieldsToFlushesAndReads) {
  make_source(2);
  Duration free = resync(Client::none);
  EXPECT_EQ(held_to, 0u);
  for (Client client : {Client::flushes, Client::reads}) {
    held_to = 0;
    make_source(2);
    Duration busy = resync(client);
    EXPECT_GT(held_to, 0u);
    EXPECT_GT(busy, 2 * free);
  }
}

// Its own timer wakes the resync when it may read again. No other event does.
TEST_F(ResyncPaceTest, WakesUpByItself) {
  make_source(2);
  connect(1, 2);
  int turns = 0;
  for (; turns < 10'000 && !(status(node(1)).in_sync & set_of(2)); ++turns) {
    exchange();
    std::optional<Instant> next;
    for (auto& n : nodes)
      if (auto at = n->core->next_tick(); at && (!next || *at < *next)) next = at;
    ASSERT_TRUE(next || (status(node(1)).in_sync & set_of(2)));
    if (next) pass(std::max(*next - node(1).now(), Duration(1)));
  }
  EXPECT_TRUE(status(node(1)).in_sync & set_of(2));
}

TEST_F(ResyncPaceTest, EachTargetHasItsTurn) {
  make_source(3);
  for (ReplicaId id : {2, 3}) connect(1, id);
  std::uint64_t least = 0, most = 0;  // blocks
  for (int i = 0; i < 400 && least < 400; ++i) {
    node(1).held = [=](Disk kind) { return kind == Disk::journal_write && i % 5 != 4; };
    if (i % 5 == 0) write_flush(1, 1023);
    exchange();
    pass(milliseconds(10));
    auto peers = status(node(1)).peers;
    least = std::min(peers[0].synced_blocks, peers[1].synced_blocks);
    most = std::max(peers[0].synced_blocks, peers[1].synced_blocks);
  }
  EXPECT_GT(3 * least, most);
}

// The time of a request that waits for an absent member is not disk latency, so it does not count as usual.
TEST_F(ResyncPaceTest, ASuspensionIsNotWhatRequestsTake) {
  make_source(2, OnPeerLoss::suspend);
  resync(Client::none);
  lost = [](ReplicaId, const PeerMessage& m) { return std::holds_alternative<Ack>(m); };
  auto waiting = write_flush(1, 5);
  exchange();
  disconnect(1, 2);
  lost = nullptr;
  ASSERT_TRUE(status(node(1)).suspended);
  ASSERT_FALSE(node(1).is_done(waiting));
  for (int i = 0; i < 20; ++i) pass(Pace::interval);
  connect(1, 2);
  exchange();
  ASSERT_TRUE(node(1).is_done(waiting));
  for (int i = 0; i < 3; ++i) pass(Pace::interval);
  disconnect(1, 2);
  lose_disk(2);
  node(1).step(Promote{9, true});
  held_to = 0;
  resync(Client::flushes);
  EXPECT_GT(held_to, 0u);
}

}  // namespace
}  // namespace twinloft::repl::core
