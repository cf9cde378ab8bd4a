// Buffered links: who waits for a far replica, what the journals keep for it, and what the primary reports.
#include "far_buffers.h"

#include "roles.h"

namespace twinloft::repl::core {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant at(Duration d) {
  return Instant{} + d;
}

TEST(WriteTimesTest, TellsSinceWhenARecordWaits) {
  WriteTimes times(seconds(1));
  EXPECT_EQ(times.before(1), std::nullopt);
  times.note(10, at(seconds(1)));
  times.note(20, at(milliseconds(1500)));  // within the interval
  times.note(30, at(seconds(3)));
  times.note(30, at(seconds(9)));  // nothing new
  EXPECT_EQ(times.before(5), at(seconds(1))) << "older than everything that is known";
  EXPECT_EQ(times.before(10), at(seconds(1)));
  EXPECT_EQ(times.before(29), at(seconds(1)));
  EXPECT_EQ(times.before(30), at(seconds(3)));
  times.drop_before(30);
  EXPECT_EQ(times.before(29), at(seconds(3)));
}

TEST(WriteTimesTest, ALongLagTakesLittleMemoryAndStaysRight) {
  WriteTimes times(seconds(1));
  for (RecordNo i = 1; i <= 100'000; ++i) times.note(i, at(seconds(i)));
  for (RecordNo i : {RecordNo{1}, RecordNo{5'000}, RecordNo{70'000}, RecordNo{99'999}}) {
    EXPECT_LE(*times.before(i), at(seconds(i)));
    EXPECT_GT(*times.before(i), at(seconds(i) - seconds(64))) << i;
  }
}

TEST(LineRateTest, AQuietVolumeFitsThroughTheLine) {
  LineRate line(seconds(1));
  EXPECT_TRUE(line.carries_the_load()) << "nothing is known";
  std::uint64_t written = 0, arrived = 0;
  int second = 0;
  auto run = [&](int count, std::uint64_t writes, std::optional<std::uint64_t> arrives) {
    for (int i = 0; i < count; ++i) {
      written += writes, arrived += arrives.value_or(0);
      line.note(written, arrives ? std::optional(arrived) : std::nullopt, at(seconds(++second)));
    }
  };
  run(20, 5000, 1000);
  EXPECT_FALSE(line.carries_the_load());
  run(20, 5000, std::nullopt);
  EXPECT_FALSE(line.carries_the_load()) << "the measured rate stays known";
  run(6, 100, std::nullopt);
  EXPECT_FALSE(line.carries_the_load()) << "the last ten seconds count";
  run(6, 100, std::nullopt);
  EXPECT_TRUE(line.carries_the_load());
  run(20, 800, std::nullopt);
  EXPECT_FALSE(line.carries_the_load()) << "more than three quarters of the line";
}

// ---- cores

struct FarBuffersTest : RolesTest {
  using WhenFull = BufferConfig::WhenFull;
  static constexpr std::uint64_t mib = 1u << 20;
  std::uint64_t ring = journal_ring_bytes_min;

  // Replica 1 is primary. The last replica is behind buffered links, the others use C.
  void make_far(std::size_t count, std::uint64_t bound = 64 * mib, WhenFull when_full = WhenFull::slow_down,
                bool spill = false) {
    nodes.clear();
    up.clear();
    for (ReplicaId id = 1; id <= count; ++id) {
      Config c = config_of(id, count);
      c.on_peer_loss = OnPeerLoss::go_on;
      c.send_window_bytes = 1u << 20;
      c.spill = spill;
      for (PeerConfig& p : c.peers)
        if (id == count || p.id == count) p = {p.id, Protocol::A, BufferConfig{bound, when_full}};
      nodes.push_back(std::make_unique<Shell>(
          ShellOptions{.replica = id, .config = c, .volume_blocks = 4096, .ring_bytes = ring, .seed = id}));
    }
    delivered.assign(count, 0);
    connect_all();
    exchange();
    ASSERT_TRUE(promote(1)->ok);
  }
  void make_far_with_content(std::size_t count, std::uint64_t bound = 64 * mib,
                             WhenFull when_full = WhenFull::slow_down, bool spill = false) {
    make_far(count, bound, when_full, spill);
    fill(1, 0, 10, 1);
  }
  ReplicaId far() const { return static_cast<ReplicaId>(nodes.size()); }
  void hold_far() {
    node(far()).held = [](Disk kind) { return kind == Disk::journal_write; };
  }
  void release_far() { node(far()).held = nullptr; }
  // Writes, each with its flush. The number of the last flush.
  std::uint64_t write_mib(std::uint64_t count, int value = 7) {
    in = filled(block_size, value);
    std::uint64_t last = 0;
    for (std::uint64_t i = 0; i < count * 256; ++i) {
      node(1).submit(ClientOp::write, i % 2048 * block_size, block_size, in.data());
      if (i % 64 == 63) last = node(1).submit(ClientOp::flush), exchange();
    }
    return last;
  }
  BufferStatus buffer(ReplicaId id) {
    for (const PeerStatus& p : status(node(id)).peers)
      if (p.id == far() && p.buffer) return *p.buffer;
    ADD_FAILURE() << "no buffer";
    return {};
  }
  bool says(ReplicaId id, std::string_view text) {
    return std::any_of(node(id).notices.begin(), node(id).notices.end(),
                       [&](const std::string& n) { return n.find(text) != n.npos; });
  }
  void disconnect_far() {
    for (ReplicaId id = 1; id < far(); ++id) disconnect(id, far());
  }
  void connect_far() {
    for (ReplicaId id = 1; id < far(); ++id) connect(id, far());
  }
  void expect_equal() {
    exchange();
    for (ReplicaId id = 1; id <= far(); ++id) checkpoint(id);
    for (ReplicaId id = 2; id <= far(); ++id) EXPECT_TRUE(node(1).data == node(id).data) << id;
  }
};

// Without a buffer, an acknowledgement under protocol A waits for the send window.
TEST_F(FarBuffersTest, WritersDoNotWaitForTheFarReplica) {
  make_far_with_content(2);
  hold_far();
  auto f = write_mib(3);
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_GT(buffer(1).lag_bytes, 3 * mib);
  EXPECT_GT(buffer(1).lag_lsns, 0u);
  EXPECT_FALSE(buffer(1).slows);
  EXPECT_LT(status(node(1)).peers[0].sent, status(node(1)).last);
  node(1).pass_time(seconds(12));
  EXPECT_GE(buffer(1).lag, seconds(12));
  release_far();
  expect_equal();
  EXPECT_EQ(buffer(1).lag_bytes, 0u);
  EXPECT_EQ(buffer(1).lag, Duration(0));
}

TEST_F(FarBuffersTest, TheJournalKeepsTheRecordsOfAnAbsentReplica) {
  make_far_with_content(2);
  disconnect_far();
  EXPECT_TRUE(node(1).is_done(write_mib(3)));
  checkpoint(1);
  EXPECT_GT(status(node(1)).journal_used, 3 * mib);
  connect_far();
  expect_equal();
  EXPECT_FALSE(says(1, "resync"));
  checkpoint(1);
  EXPECT_LT(status(node(1)).journal_used, mib);
}

TEST_F(FarBuffersTest, AtTheBoundWritersWait) {
  make_far_with_content(2, 2 * mib);
  hold_far();
  auto f = write_mib(3);
  EXPECT_FALSE(node(1).is_done(f));
  EXPECT_TRUE(buffer(1).slows);
  EXPECT_TRUE(says(1, "writers wait for it"));
  EXPECT_EQ(status(node(1)).slowed_by, 2u);
  EXPECT_LT(buffer(1).lag_bytes, 2 * mib + record_blocks_max * block_size);
  release_far();
  exchange();
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_TRUE(says(1, "writers do not wait for it any more"));
  EXPECT_FALSE(says(1, "resync"));
  expect_equal();
}

// A line that breaks while the buffer is full gets some time, as a line that is stuck does.
TEST_F(FarBuffersTest, WithoutProgressTheRecordsAreGivenUp) {
  for (bool away : {false, true}) {
    make_far_with_content(2, 2 * mib);
    hold_far();
    auto f = write_mib(3);
    if (away) disconnect_far(), exchange();
    node(1).pass_time(seconds(19));
    EXPECT_FALSE(node(1).is_done(f));
    node(1).pass_time(seconds(2));
    exchange();
    EXPECT_TRUE(node(1).is_done(f));
    EXPECT_TRUE(buffer(1).given_up);
    EXPECT_EQ(node(1).closed.size(), away ? 0u : 1u);
    checkpoint(1);
    EXPECT_LT(status(node(1)).journal_used, mib);
    if (!away) disconnect_far();
    release_far();
    connect_far();
    expect_equal();
    EXPECT_FALSE(buffer(1).given_up);
  }
}

TEST_F(FarBuffersTest, ByPolicyNoWriterWaits) {
  make_far_with_content(2, 2 * mib, WhenFull::resync);
  hold_far();
  auto f = write_mib(4);
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_TRUE(buffer(1).given_up);
  ASSERT_EQ(node(1).closed.size(), 1u);
  EXPECT_NE(node(1).closed[0].reason.find("its buffer of 2 MiB is full"), std::string::npos);
  disconnect_far();
  release_far();
  connect_far();
  expect_equal();
}

// A line of 1 MiB a second, and 3 MiB of writes a second: a resync would only fill the buffer again.
TEST_F(FarBuffersTest, AResyncWaitsUntilTheLineCarriesTheLoad) {
  make_far_with_content(2, 3 * mib, WhenFull::resync);
  for (int i = 0; i < 3; ++i) write_mib(1), node(1).pass_time(seconds(1));
  hold_far();
  for (int i = 0; i < 12; ++i) write_mib(3), node(1).pass_time(seconds(1));
  ASSERT_TRUE(buffer(1).given_up);
  disconnect_far();
  release_far();
  connect_far();
  exchange();
  EXPECT_TRUE(buffer(1).waits);
  EXPECT_TRUE(buffer(1).given_up);
  for (int i = 0; i < 11; ++i) node(1).pass_time(seconds(1)), exchange();
  EXPECT_FALSE(buffer(1).given_up) << "the volume is quiet";
  expect_equal();
}

TEST_F(FarBuffersTest, AResyncDoesNotWaitForEver) {
  make_far_with_content(2, 3 * mib, WhenFull::resync);
  for (int i = 0; i < 3; ++i) write_mib(1), node(1).pass_time(seconds(1));
  hold_far();
  for (int i = 0; i < 12; ++i) write_mib(3), node(1).pass_time(seconds(1));
  disconnect_far();
  release_far();
  connect_far();
  bool begun = false;
  for (int i = 0; i < 320 && !begun; ++i) {
    write_mib(1), node(1).pass_time(seconds(1));
    begun = !buffer(1).waits;
    EXPECT_TRUE(!begun || i > 250) << i;
  }
  EXPECT_TRUE(begun);
}

// The tail must not move between the two roles either.
TEST_F(FarBuffersTest, ADemotionKeepsTheRecords) {
  make_far_with_content(2);
  disconnect_far();
  write_mib(3);
  checkpoint(1);
  node(1).step(Demote{5});
  exchange();
  checkpoint(1);
  EXPECT_GT(status(node(1)).journal_used, 3 * mib);
  ASSERT_TRUE(promote(1, true)->ok);
  connect_far();
  expect_equal();
  EXPECT_FALSE(says(1, "resync"));
}

// The far replica has the epoch's record alone, and does not know that it is committed. Writing it home takes
// no disk operation, so no event follows.
TEST_F(FarBuffersTest, AResyncOfAReplicaWithoutContentBegins) {
  make_far(2, 2 * mib, WhenFull::resync);
  disconnect_far();
  restart(2);
  write_mib(4);
  ASSERT_TRUE(buffer(1).given_up);
  checkpoint(1);
  connect_far();
  exchange();
  EXPECT_TRUE(says(2, "resync is finished"));
  expect_equal();
}

// ---- other replicas

TEST_F(FarBuffersTest, AMemberThatIsPromotedGoesOnFromItsOwnRecords) {
  make_far_with_content(3);
  disconnect_far();
  write_mib(3);
  for (ReplicaId id : {1, 2}) checkpoint(id);
  node(1).step(Demote{5});
  exchange();
  ASSERT_TRUE(promote(2)->ok);
  checkpoint(2);
  connect_far();
  expect_equal();
  EXPECT_TRUE(says(2, "peer 3 is connected"));
  EXPECT_FALSE(says(2, "resync"));
}

TEST_F(FarBuffersTest, AMemberKeepsNoMoreThanTheFarReplicaLacks) {
  make_far_with_content(3);
  write_mib(2);
  node(1).pass_time(seconds(2));  // KeepFor
  exchange();
  for (ReplicaId id : {1, 2, 3}) checkpoint(id);
  EXPECT_LT(status(node(2)).journal_used, mib);
  EXPECT_EQ(buffer(2).lag_bytes, buffer(1).lag_bytes);
}

TEST_F(FarBuffersTest, WhatThePrimaryGivesUpAMemberGivesUp) {
  make_far_with_content(3, 2 * mib, WhenFull::resync);
  hold_far();
  write_mib(4);
  node(1).pass_time(seconds(2));
  exchange();
  EXPECT_TRUE(buffer(1).given_up);
  EXPECT_TRUE(buffer(2).given_up);
  release_far();
  disconnect_far();
  connect_far();
  exchange();
  for (int i = 0; i < 3; ++i) node(1).pass_time(seconds(1)), exchange();
  EXPECT_FALSE(buffer(2).given_up) << "after the resync, records suffice again";
}

// A release without buffers closes the connection at a message that it does not know.
TEST_F(FarBuffersTest, AnOldReleaseGetsNoNewMessage) {
  make_far_with_content(3);
  for (ReplicaId id : {2, 3}) {
    disconnect(1, id);
    up[{1, id}] = true;
    node(1).step(PeerUp{id, false});
    node(id).step(PeerUp{1});
  }
  exchange();
  std::size_t before = node(1).sent.size();
  write_mib(1);
  node(1).pass_time(seconds(2));
  exchange();
  for (std::size_t i = before; i < node(1).sent.size(); ++i) {
    EXPECT_FALSE(std::holds_alternative<Behind>(node(1).sent[i]));
    EXPECT_FALSE(std::holds_alternative<KeepFor>(node(1).sent[i]));
  }
}

TEST_F(FarBuffersTest, AForcedPromotionTellsWhatThePrimaryReported) {
  make_far_with_content(2);
  node(1).pass_time(seconds(2));
  exchange();
  hold_far();
  write_mib(3);
  node(1).pass_time(seconds(2));
  exchange();
  auto behind = status(node(2)).behind;
  ASSERT_TRUE(behind);
  EXPECT_GT(behind->last, behind->durable);
  EXPECT_GT(behind->bytes, 2 * mib);
  EXPECT_GE(behind->lag, seconds(2));
  disconnect_far();
  release_far();
  exchange();
  node(2).pass_time(seconds(7));
  auto done = promote(2, true);
  ASSERT_TRUE(done && done->ok) << (done ? done->text : "");
  EXPECT_NE(done->text.find("The primary last reported 7."), std::string::npos) << done->text;
  EXPECT_NE(
      done->text.find(fmt::format("LSN {} to {} were on their way", behind->durable.v + 1, behind->last.v)),
      std::string::npos)
      << done->text;
}

TEST_F(FarBuffersTest, ReportsThatDoNotFitAreRefused) {
  make_far_with_content(3);
  Epoch other{99, {}};
  node(2).input(1, Behind{other, Lsn{5}, Lsn{4}, 1, 1});
  ASSERT_EQ(node(2).closed.size(), 1u);
  node(3).input(1, KeepFor{other, 2, false, {}});
  ASSERT_EQ(node(3).closed.size(), 1u);
}

// ---- the spill

struct SpillTest : FarBuffersTest {
  void make_spilling(std::size_t count, std::uint64_t bound = 64 * mib,
                     WhenFull when_full = WhenFull::slow_down) {
    make_far_with_content(count, bound, when_full, true);
  }
  // Each step moves the tails too.
  void write_much(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      write_mib(1, static_cast<int>(20 + i));
      for (ReplicaId id = 1; id <= far(); ++id)
        if (!node(id).held) checkpoint(id);
    }
  }
  // The far replica is away, and lacks that much.
  void make_behind(std::size_t count, std::uint64_t mibs, WhenFull when_full = WhenFull::slow_down) {
    make_spilling(count, 64 * mib, when_full);
    disconnect_far();
    write_much(mibs);
    ASSERT_GT(status(node(1)).spilled, 3 * mib);
  }
  std::uint64_t spilled(ReplicaId id) { return status(node(id)).spilled; }
};

TEST_F(SpillTest, RecordsThatTheJournalHasNoRoomForGoToTheSpill) {
  for (bool away : {false, true}) {
    make_spilling(2);
    if (away) disconnect_far();
    hold_far();
    write_much(20);
    EXPECT_TRUE(node(1).is_done(write_mib(1)));
    EXPECT_GT(spilled(1), 12 * mib);
    EXPECT_GT(buffer(1).lag_bytes, 21 * mib);
    EXPECT_LT(status(node(1)).journal_used, status(node(1)).journal_size / 4 * 3);
    EXPECT_EQ(buffer(1).bound, 64 * mib);
    release_far();
    if (away) connect_far();
    expect_equal();
    EXPECT_FALSE(says(1, "resync"));
    EXPECT_EQ(buffer(1).lag_bytes, 0u);
    checkpoint(1);
    EXPECT_TRUE(node(1).spill.empty()) << node(1).spill.size();
  }
}

// The far replica stops at any record, and the primary starts anew: the spill is found again.
TEST_F(SpillTest, TheSpillOutlivesTheProcess) {
  make_behind(2, 16);
  ASSERT_GT(spilled(1), 8 * mib);
  connect_far();
  Lsn begun = status(node(2)).durable;
  exchange([&] { return status(node(2)).durable.v > begun.v + 20; });
  disconnect_far();
  exchange();
  ASSERT_GT(buffer(1).lag_bytes, 5 * mib);
  restart(1), restart(2);
  EXPECT_GT(spilled(1), 4 * mib);
  connect_far();
  exchange();
  ASSERT_TRUE(promote(1, true)->ok);
  expect_equal();
  EXPECT_FALSE(says(1, "resync"));
}

TEST_F(SpillTest, AMemberThatIsPromotedGoesOnFromItsOwnSpill) {
  make_behind(3, 16);
  EXPECT_GT(spilled(2), 8 * mib);
  node(1).step(Demote{5});
  exchange();
  ASSERT_TRUE(promote(2)->ok);
  connect_far();
  expect_equal();
  EXPECT_TRUE(says(2, "peer 3 is connected"));
  EXPECT_FALSE(says(2, "resync"));
}

TEST_F(SpillTest, AMembersSpillShrinksWithTheLag) {
  make_behind(3, 16);
  connect_far();
  exchange();
  node(1).pass_time(seconds(2));
  expect_equal();
  for (int i = 0; i < 3; ++i) node(1).pass_time(seconds(2)), exchange();
  EXPECT_EQ(spilled(2), 0u);
  EXPECT_TRUE(node(2).spill.empty());
}

TEST_F(SpillTest, TheBoundHoldsBeyondTheJournal) {
  make_spilling(2, 12 * mib);
  hold_far();
  for (int i = 0; i < 14; ++i) write_mib(1), checkpoint(1);
  auto f = write_mib(1);
  EXPECT_FALSE(node(1).is_done(f));
  EXPECT_GT(spilled(1), 4 * mib);
  EXPECT_TRUE(buffer(1).slows);
  release_far();
  expect_equal();
  EXPECT_TRUE(node(1).is_done(f));
}

TEST_F(SpillTest, ALostOrDamagedChunkCostsAResyncAndNoData) {
  for (bool lost_chunk : {false, true}) {
    make_behind(2, 16);
    ASSERT_GT(node(1).spill.size(), 1u);
    if (lost_chunk)
      node(1).spill.erase(node(1).spill.begin());
    else
      node(1).spill.begin()->second[20'000] ^= std::byte{1};
    connect_far();
    exchange();
    EXPECT_TRUE(says(1, lost_chunk ? "cannot be read" : "is damaged")) << lost_chunk;
    disconnect_far();
    connect_far();
    expect_equal();
    EXPECT_TRUE(says(2, "resync"));
    EXPECT_TRUE(node(1).spill.empty());
  }
}

// The far replica has acknowledged records of this connection, and then the line stays down.
TEST_F(SpillTest, WritersGoOnAfterTheLossOfTheSpill) {
  make_behind(2, 16);
  ASSERT_GT(node(1).spill.size(), 2u);
  std::next(node(1).spill.begin())->second[20'000] ^= std::byte{1};
  Lsn begun = status(node(2)).durable;
  node(1).held = [&](Disk kind) {
    return kind == Disk::spill_read && status(node(1)).peers.at(0).sent > begun;
  };
  connect_far();
  exchange();
  ASSERT_GT(status(node(1)).peers.at(0).durable, begun);
  ASSERT_EQ(node(1).pending(Disk::spill_read), 1u);
  node(1).held = nullptr;
  exchange();
  ASSERT_TRUE(says(1, "is damaged"));
  disconnect_far();
  EXPECT_TRUE(buffer(1).given_up);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(node(1).is_done(write_mib(1))), checkpoint(1);
  connect_far();
  expect_equal();
}

TEST_F(SpillTest, APeerThatAnswersTwiceDoesNotHarmTheSpill) {
  make_behind(2, 16);
  ASSERT_GT(node(1).spill.size(), 2u);
  node(1).held = [](Disk kind) { return kind == Disk::spill_read; };
  connect_far();
  exchange();
  ASSERT_EQ(node(1).pending(Disk::spill_read), 1u);
  auto second = std::next(node(1).spill.begin())->second;
  LogMark elsewhere = decode_spill_chunk(second, Shell::volume(), 1)->before;
  for (int i = 0; i < 5; ++i) node(1).input(2, MatchState{{}, {}, elsewhere, {}});
  EXPECT_EQ(node(1).pending(Disk::spill_read), 1u) << "one chunk at a time";
  node(1).held = nullptr;
  exchange();
  EXPECT_FALSE(says(1, "the spill"));
  EXPECT_GT(spilled(1), 4 * mib);
}

TEST_F(SpillTest, ASpillThatDoesNotAnswerIsNotWaitedFor) {
  make_spilling(2);
  disconnect_far();
  node(1).held = [](Disk kind) { return kind == Disk::spill_write; };
  std::uint64_t f = 0;
  for (int i = 0; i < 12; ++i) f = write_mib(1), checkpoint(1);
  EXPECT_FALSE(node(1).is_done(f));
  for (int i = 0; i < 50 && !node(1).is_done(f); ++i) node(1).pass_time(seconds(1)), exchange();
  EXPECT_TRUE(says(1, "the spill does not answer"));
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_TRUE(buffer(1).given_up);
  node(1).held = nullptr;
  connect_far();
  expect_equal();
}

// Then the journal alone is the buffer, and what is in the spill stays valid.
TEST_F(SpillTest, AFullSpillTriggersThePolicy) {
  for (auto when_full : {WhenFull::slow_down, WhenFull::resync}) {
    make_behind(2, 10, when_full);
    node(1).fault = [](Disk kind) { return kind == Disk::spill_write ? ENOSPC : 0; };
    for (int i = 0; i < 8; ++i) write_mib(1), checkpoint(1);
    EXPECT_TRUE(says(1, "the spill cannot be written (No space left on device)"));
    EXPECT_EQ(buffer(1).given_up, when_full == WhenFull::resync);
    EXPECT_EQ(buffer(1).slows, when_full == WhenFull::slow_down);
    if (when_full == WhenFull::slow_down) {
      connect_far();
      exchange();
      EXPECT_FALSE(says(1, "resync"));
    }
    node(1).fault = nullptr;
    node(1).pass_time(seconds(2));
    if (when_full == WhenFull::resync) connect_far();
    expect_equal();
  }
}

TEST_F(SpillTest, ADamagedJournalIsNotSpilled) {
  make_spilling(2);
  disconnect_far();
  node(1).held = [](Disk kind) { return kind == Disk::journal_read; };
  for (int i = 0; i < 5; ++i) write_mib(1);
  ASSERT_GT(node(1).pending(Disk::journal_read), 0u);
  for (std::size_t at = node(1).journal.size() - 8 * mib; at < node(1).journal.size(); at += 64 * 1024)
    node(1).journal[at + 5000] ^= std::byte{1};
  node(1).held = nullptr;
  exchange();
  EXPECT_EQ(spilled(1), 0u);
  EXPECT_TRUE(says(1, "of the journal"));
}

// The next chunk is read while one is written. If the write fails, the next one does not continue the spill.
TEST_F(SpillTest, AChunkBehindAFailedOneIsNotTaken) {
  ring = 32 * mib;
  make_behind(2, 16);
  ASSERT_GT(node(1).spill.size(), 0u);
  node(1).held = [](Disk kind) { return kind == Disk::spill_write; };
  while (node(1).pending(Disk::spill_write) == 0) write_mib(1), checkpoint(1);
  // A second chunk is read, and waits for the write.
  for (int i = 0; i < 6; ++i) write_mib(1), checkpoint(1);
  node(1).held = nullptr;
  int failures = 1;
  node(1).fault = [&](Disk kind) { return kind == Disk::spill_write && failures-- > 0 ? EIO : 0; };
  for (int i = 0; i < 4; ++i) write_mib(1), checkpoint(1), node(1).pass_time(seconds(1));
  exchange();
  ASSERT_LT(failures, 1);
  ASSERT_GT(spilled(1), 4 * mib);
  connect_far();
  expect_equal();
  EXPECT_FALSE(says(1, "damaged"));
  EXPECT_FALSE(says(1, "resync"));
}

TEST_F(SpillTest, AResyncOfAMemberDropsItsSpill) {
  make_behind(3, 12);
  ASSERT_GT(spilled(2), 4 * mib);
  disconnect(1, 2);
  exchange();
  for (int i = 0; i < 12; ++i) write_mib(1), checkpoint(1);
  connect(1, 2);
  exchange();
  ASSERT_TRUE(says(2, "resync"));
  EXPECT_EQ(spilled(2), 0u);
  EXPECT_TRUE(node(2).spill.empty());
  EXPECT_TRUE(buffer(2).given_up) << "it has no record that the far replica needs next";
  node(1).pass_time(seconds(2));
  exchange();
  connect_far();
  node(1).pass_time(seconds(2));
  expect_equal();
  EXPECT_FALSE(says(3, "resync")) << "the primary has all of them";
}

TEST(SpillIndexTest, OnlyChunksThatReachTheLogAreTaken) {
  Log log({64 * block_size, {}}, {Lsn{100}, {}}, {});
  auto chunk = [](std::uint64_t number, std::uint64_t before, std::uint64_t last) {
    return SpillChunk{number, {Lsn{before}, {}}, {Lsn{last}, {}}, {}, {block_size}, 5, block_size, 0};
  };
  SpillIndex index;
  EXPECT_FALSE(index.load({chunk(1, 50, 80), chunk(2, 80, 99)}, log)) << "a gap before the log";
  EXPECT_FALSE(index.load({chunk(1, 50, 80), chunk(3, 80, 100)}, log)) << "a chunk is missing";
  EXPECT_FALSE(index.load({chunk(1, 50, 79), chunk(2, 80, 100)}, log)) << "it does not continue";
  EXPECT_TRUE(index.empty());
  ASSERT_TRUE(index.load({chunk(1, 50, 80), chunk(2, 80, 100)}, log));
  EXPECT_EQ(index.first(), first_record_no - 10);
  EXPECT_EQ(index.end(), first_record_no);
  EXPECT_EQ(index.behind(Lsn{80})->chunk.number, 2u);
  EXPECT_EQ(index.behind(Lsn{79})->chunk.number, 1u);
  EXPECT_EQ(index.behind(Lsn{49}), nullptr);
  EXPECT_EQ(index.behind(Lsn{100}), nullptr);
  EXPECT_EQ(index.upto(Lsn{79}), nullptr);
  EXPECT_EQ(index.upto(Lsn{80})->chunk.number, 1u);
  index.drop_before(first_record_no - 4);
  EXPECT_EQ(index.first(), first_record_no - 5);
  EXPECT_EQ(index.bytes(), block_size);
}

}  // namespace twinloft::repl::core
