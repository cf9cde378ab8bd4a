// Discarding one side of a split brain: all of it or nothing, and only once the winner is connected.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "roles.h"

namespace twinloft::repl::core {
namespace {

constexpr ReplicaId loser = 1, winner = 2;

struct DiscardTest : RolesTest {
  // Both replicas continued alone, and the first has been demoted since.
  void part() {
    make(2);
    connect_all();
    exchange();
    promote(loser);
    write_flush(loser, 1);
    exchange();
    node(loser).step(CheckpointNow{});
    exchange();
    write_flush(loser, 2);
    exchange();
    disconnect(loser, winner);
    ASSERT_TRUE(promote(winner, true)->ok);
    write_alone(winner, 7, 0x77);
    node(loser).step(Promote{3, true});
    write_alone(loser, 8, 0x88);
    write_alone(loser, 9, 0x99);
  }
  void write_alone(ReplicaId id, std::uint64_t block, int value) {
    in = filled(block_size, value);
    auto f = write_flush(id, block);
    exchange();
    ASSERT_EQ(node(id).done.at(f), 0);
  }
  void demote_loser() {
    node(loser).step(Demote{1});
    exchange();
    ASSERT_EQ(status(node(loser)).role, Role::secondary);
  }
  void meet() {
    connect(loser, winner);
    exchange();
  }
  void meet_again() {
    disconnect(loser, winner);
    meet();
  }
  void part_and_meet() {
    part();
    demote_loser();
    meet();
    ASSERT_TRUE(split());
    last = status(node(loser)).last;
    node(loser).commands.clear();
  }
  bool split() { return status(node(loser)).peers[0].split_brain; }
  void restart_loser() {
    disconnect(loser, winner);
    delivered[loser - 1] = node(loser).sent.size();
    node(loser).restart();
    exchange();
  }
  void discard(bool force = false) { node(loser).step(Discard{5, force}); }
  void expect_answer(bool ok, std::string_view words) {
    ASSERT_EQ(node(loser).commands.size(), 1u);
    EXPECT_EQ(node(loser).commands[0].ok, ok) << node(loser).commands[0].text;
    EXPECT_NE(node(loser).commands[0].text.find(words), std::string::npos) << node(loser).commands[0].text;
  }
  void expect_unchanged() {
    EXPECT_EQ(status(node(loser)).last, last);
    EXPECT_FALSE(status(node(loser)).inconsistent);
    meet_again();
    EXPECT_TRUE(split());
  }
  void expect_filled() {
    for (ReplicaId id : {loser, winner}) node(id).step(CheckpointNow{});
    exchange();
    EXPECT_FALSE(status(node(loser)).inconsistent);
    EXPECT_EQ(node(loser).data, node(winner).data);
    EXPECT_EQ(status(node(winner)).in_sync, set_of(loser) | set_of(winner));
    EXPECT_FALSE(split() || status(node(winner)).peers[0].split_brain);
  }

  // Everything except the common records is lost. It is no longer known that any record was committed.
  void lose_all_of(ReplicaId id) {
    rot(id, 1);
    auto sb = decode_superblock({node(id).journal.data(), block_size});
    auto* damaged = sb ? std::get_if<disk_state::Damaged>(&sb->disk) : nullptr;
    ASSERT_TRUE(damaged && damaged->newest && damaged->newest->in_sync == (set_of(1) | set_of(2)));
    damaged->until = {};
    damaged->of.reset();
    node(id).write_superblock(*sb);
    restart(id);
    last = status(node(id)).last;
  }
  // Damages the journal block with that content, or a block before it.
  void rot_loser(int value, std::size_t blocks_before) {
    std::vector<std::byte>& journal = node(loser).journal;
    std::vector<std::byte> block = filled(block_size, value);
    auto found = std::search(journal.begin(), journal.end(), block.begin(), block.end());
    ASSERT_NE(found, journal.end());
    *(found - static_cast<std::ptrdiff_t>(blocks_before * block_size) + 100) ^= std::byte{1};
  }

  Lsn last;
};

// An earlier process wrote committed blocks home, and its sync failed. The blocks may be readable now, and
// lost after a power cut. The only sign: they do not count as home.
TEST_F(DiscardTest, WhatWasOnItsWayHomeIsWrittenAgainThoughItIsEqual) {
  part();
  write_alone(winner, 8, 0x88);
  demote_loser();
  node(loser).held = [](Disk kind) { return kind == Disk::home_write; };
  node(loser).step(CheckpointNow{});
  exchange();
  ASSERT_GT(node(loser).pending(Disk::home_write), 0u) << "the superblock has the commit LSN";
  std::fill_n(node(loser).data.begin() + 8 * block_size, block_size, std::byte{0x88});
  auto sb = decode_superblock({node(loser).journal.data(), block_size});
  ASSERT_TRUE(sb);
  std::fill_n(node(loser).journal.begin() + static_cast<std::ptrdiff_t>(sb->digest_offset), sb->digest_bytes,
              std::byte{0});  // digest unknown
  restart_loser();
  ASSERT_EQ(status(node(loser)).commit, status(node(loser)).last);
  ASSERT_GT(status(node(loser)).dirty_blocks, 0u);
  meet();
  ASSERT_TRUE(split());
  discard();
  std::uint64_t before = status(node(loser)).home_blocks_written;
  node(loser).held = nullptr;
  meet_again();
  expect_filled();
  EXPECT_GE(status(node(loser)).home_blocks_written - before, ShellOptions().volume_blocks)
      << "and all equal blocks, because they cannot be distinguished";
}

TEST_F(DiscardTest, TheLoserIsFilledFromTheWinner) {
  part_and_meet();
  discard();
  EXPECT_TRUE(node(loser).commands.empty()) << "the command waits for the winner";
  EXPECT_EQ(status(node(loser)).discards_for, winner);
  EXPECT_EQ(status(node(loser)).last, last);
  meet_again();
  expect_answer(true, "a resync from replica 2 follows");
  EXPECT_EQ(status(node(loser)).discards_for, 0u);
  expect_filled();
  const auto& kinds = node(loser).notice_kinds;
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), NoticeKind::discarded), 1);
  write_alone(winner, 30, 0x30);
  expect_filled();
}

// All records of the journal, committed ones too, since no other replica has them.
TEST_F(DiscardTest, TheWholeJournalIsArchivedFirst) {
  part_and_meet();
  std::uint64_t used = status(node(loser)).journal_used;
  ASSERT_GT(used, 0u);
  discard();
  node(loser).held = [](Disk kind) { return kind == Disk::archive; };
  meet_again();
  EXPECT_EQ(node(loser).pending(Disk::archive), 1u);
  EXPECT_EQ(status(node(loser)).last, last) << "no record is discarded before it is archived";
  node(loser).held = nullptr;
  exchange();
  EXPECT_EQ(node(loser).archived.size(), used);
  expect_answer(true, "");
}

// The failed device ends the command. The superblock that is being written is valid nevertheless.
TEST_F(DiscardTest, ADeviceThatFailsWhileTheHistoryIsGivenUpEndsTheCommand) {
  part_and_meet();
  discard();
  node(loser).held = [](Disk kind) { return kind == Disk::superblock; };
  meet_again();
  ASSERT_TRUE(status(node(loser)).inconsistent);
  node(loser).step(Detach{});
  expect_answer(false, "has failed: ");
  node(loser).held = nullptr;
  exchange();
  EXPECT_EQ(node(loser).commands.size(), 1u);
  restart_loser();
  meet();
  expect_filled();
}

TEST_F(DiscardTest, NothingIsGivenUpForAWinnerThatRefuses) {
  part_and_meet();
  discard();
  node(loser).held = [](Disk kind) { return kind == Disk::archive; };
  meet_again();
  ASSERT_EQ(node(loser).pending(Disk::archive), 1u);
  node(loser).input(winner, Refuse{"no"});
  node(loser).held = nullptr;
  while (node(loser).complete_one()) {
  }
  EXPECT_EQ(status(node(loser)).last, last);
  EXPECT_FALSE(status(node(loser)).inconsistent);
}

TEST_F(DiscardTest, NothingIsGivenUpForAWinnerWhoseDiskHasFailed) {
  part_and_meet();
  disconnect(loser, winner);
  node(winner).fault = [](Disk kind) { return kind == Disk::journal_write ? EIO : 0; };
  write_flush(winner, 3);
  exchange();
  ASSERT_TRUE(status(node(winner)).failed);
  discard();
  meet();
  EXPECT_EQ(status(node(loser)).last, last);
  EXPECT_TRUE(node(loser).closed.back().reason.starts_with("replica 2 has failed: "))
      << node(loser).closed.back().reason;
}

TEST_F(DiscardTest, WhatCannotBeArchivedIsNotGivenUp) {
  part_and_meet();
  node(loser).fault = [](Disk kind) { return kind == Disk::archive ? ENOSPC : 0; };
  discard();
  meet_again();
  expect_answer(false, "cannot be archived (No space left on device)");
  node(loser).fault = nullptr;
  expect_unchanged();
}

TEST_F(DiscardTest, NothingIsGivenUpForAWinnerThatDoesNotCome) {
  part_and_meet();
  discard();
  node(loser).pass_time(std::chrono::seconds(29));
  EXPECT_TRUE(node(loser).commands.empty());
  node(loser).pass_time(std::chrono::seconds(2));
  expect_answer(false, "has not connected as primary within 30 s: nothing was changed");
  expect_unchanged();
}

TEST_F(DiscardTest, ItIsRefusedWhereNothingSpeaksForIt) {
  part();
  node(loser).commands.clear();
  discard(true);
  expect_answer(false, "demote it first");
  demote_loser();
  node(loser).commands.clear();
  discard(true);
  expect_answer(false, "knows of no split brain");
  meet();
  node(loser).commands.clear();
  discard();
  EXPECT_FALSE(promote(loser, true)->ok) << "it is not promoted meanwhile";
  node(loser).commands.clear();
  discard();
  expect_answer(false, "already");
}

// The process ends between the command and its completion.
TEST_F(DiscardTest, ACrashLeavesASplitBrainOrAReplicaThatIsFilled) {
  for (Disk stop : {Disk::archive, Disk::superblock}) {
    part_and_meet();
    discard();
    node(loser).held = [stop](Disk kind) { return kind == stop; };
    meet_again();
    ASSERT_EQ(node(loser).pending(stop), 1u);
    restart_loser();
    node(loser).held = nullptr;
    expect_unchanged();
  }
  part_and_meet();
  std::vector<std::byte> second(node(loser).journal.begin() + superblock_offset[1],
                                node(loser).journal.begin() + superblock_offset[1] + block_size);
  discard();
  node(winner).held = [](Disk) { return true; };  // the winner starts no resync yet
  meet_again();
  expect_answer(true, "");
  restart_loser();
  EXPECT_TRUE(status(node(loser)).inconsistent);
  // The second copy is written after the first.
  std::copy(second.begin(), second.end(), node(loser).journal.begin() + superblock_offset[1]);
  restart_loser();
  EXPECT_TRUE(status(node(loser)).inconsistent);
  EXPECT_FALSE(promote(loser, true)->ok) << "it has no content to be primary of";
  node(winner).held = nullptr;
  meet();
  expect_filled();
}

// The connection is lost between archive and superblock, and comes back.
TEST_F(DiscardTest, ALostLinkOnlyDelaysIt) {
  part_and_meet();
  discard();
  for (Disk stop : {Disk::archive, Disk::superblock}) {
    node(loser).held = [stop](Disk kind) { return kind == stop; };
    meet_again();
    EXPECT_EQ(node(loser).pending(stop), 1u);
  }
  disconnect(loser, winner);
  node(loser).held = nullptr;
  exchange();
  meet();
  expect_answer(true, "");
  expect_filled();
}

// The loser's journal begins after the split. The epoch tables show the common part.
TEST_F(DiscardTest, APartingThatNoJournalReachesBackToIsFoundAllTheSame) {
  part();
  demote_loser();
  for (ReplicaId id : {loser, winner}) {
    node(id).step(CheckpointNow{});
    exchange();
  }
  meet();
  ASSERT_TRUE(split());
  node(loser).commands.clear();
  discard();
  meet_again();
  expect_answer(true, "");
  expect_filled();
}

// Writes acknowledged only here are kept, whichever record has rotted, and whether the winner would send
// records or a full resync.
TEST_F(DiscardTest, ASplitBrainIsKeptThroughADamagedJournal) {
  for (std::size_t first_record : {0, 1})
    for (bool far_apart : {false, true}) {
      part();
      write_alone(loser, 10, 0xaa);
      if (far_apart)
        for (int round = 0; round < 12; ++round)
          fill(winner, 400, 450, 10 + round), node(winner).step(CheckpointNow{}), exchange();
      ASSERT_NO_FATAL_FAILURE(rot_loser(0x88, 2 * first_record));
      restart_loser();
      ASSERT_TRUE(status(node(loser)).inconsistent);
      last = status(node(loser)).last;
      std::vector<std::byte> data = node(loser).data;
      meet();
      EXPECT_TRUE(split());
      EXPECT_NE(status(node(loser)).peers[0].why.find("before the journal was damaged"), std::string::npos)
          << status(node(loser)).peers[0].why;
      EXPECT_EQ(status(node(loser)).last, last);
      EXPECT_EQ(node(loser).data, data);
      EXPECT_TRUE(node(loser).archived.empty());
      node(loser).commands.clear();
      discard();
      meet_again();
      expect_answer(true, "a resync from replica 2 follows");
      expect_filled();
    }
}

// The record of the new epoch is lost, but the superblock still has the epoch.
TEST_F(DiscardTest, NobodyIsPromotedOverWhatADamagedReplicaKnows) {
  make_promoted(loser, 2);
  write_flush(loser, 1);
  exchange();
  disconnect(loser, winner);
  node(loser).step(Promote{3, true});
  for (int n : {8, 9, 10}) write_alone(loser, static_cast<std::uint64_t>(n), 0x11 * n);
  ASSERT_NO_FATAL_FAILURE(rot_loser(0x88, 2));
  restart_loser();
  ASSERT_TRUE(status(node(loser)).inconsistent);
  connect(loser, winner);
  exchange();
  expect_not_promoted(winner, "epoch 2 continued on replica 1");
}

// The winner was created again and promoted by force. It has the winner's id, but no common record.
TEST_F(DiscardTest, AWinnerThatLostWhatItHadIsDoubted) {
  part();
  demote_loser();
  Config c = config_of(winner, 2);
  nodes[winner - 1] = std::make_unique<Shell>(ShellOptions{.replica = winner, .config = c, .seed = 99});
  delivered[winner - 1] = 0;
  ASSERT_TRUE(promote(winner, true)->ok);
  meet();
  ASSERT_TRUE(split());
  last = status(node(loser)).last;
  node(loser).commands.clear();
  discard();
  expect_answer(false, "may have been recreated");
  expect_unchanged();
  node(loser).commands.clear();
  discard(true);
  meet_again();
  expect_answer(true, "");
  expect_filled();
}

// Replicas 1 and 2 are one side of a split brain. Replica 1 discards that side, and becomes primary later.
// For replica 2, replica 1 is still a member.
struct GivenUpTest : DiscardTest, testing::WithParamInterface<bool> {};

TEST_P(GivenUpTest, WhatItGaveUpIsNotGivenUpForOthers) {
  make_promoted(1, 3, OnPeerLoss::go_on);
  write_alone(1, 1, 1);
  lost = [](ReplicaId, const PeerMessage& m) { return std::holds_alternative<Commit>(m); };
  disconnect(1, 3);
  disconnect(2, 3);
  exchange();
  write_alone(1, 2, 2);
  write_alone(1, 4, 4);
  lost = nullptr;
  last = status(node(2)).last;
  ASSERT_LT(status(node(2)).commit, last);
  disconnect(1, 2);
  restart(1);
  ASSERT_TRUE(promote(3, true)->ok);
  write_alone(3, 3, 3);
  connect(1, 3);
  exchange();
  ASSERT_TRUE(status(node(1)).peers[1].split_brain);
  node(1).step(Discard{5, true});
  disconnect(1, 3);
  connect(1, 3);
  exchange();
  ASSERT_EQ(status(node(1)).last, status(node(3)).last);
  disconnect(1, 3);
  ASSERT_TRUE(promote(1, true)->ok);
  exchange();
  if (GetParam()) lose_all_of(2);
  connect(1, 2);
  exchange();
  EXPECT_TRUE(status(node(2)).peers[0].split_brain) << status(node(2)).peers[0].why;
  EXPECT_EQ(status(node(2)).last, last);
}

INSTANTIATE_TEST_SUITE_P(WholeAndDamaged, GivenUpTest, testing::Bool());

}  // namespace
}  // namespace twinloft::repl::core
