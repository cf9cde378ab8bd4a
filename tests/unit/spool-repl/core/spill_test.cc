// The spill: records that the journal has no room for.
#include "far.h"

namespace twinloft::repl::core {

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
