// Replicas with a damaged journal: records that come back from a peer, and the state after an accepted loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "resync.h"

namespace twinloft::repl::core {
namespace {

struct DamageTest : BitmapTest {
  // Replica 2 goes down, and a record in the middle of its log rots.
  void rot_in_the_middle() {
    make_promoted(1, 2);
    for (int i = 0; i < 6; ++i)
      fill(1, 10 * static_cast<std::uint64_t>(i), 10 * static_cast<std::uint64_t>(i) + 5, 20 + i);
    disconnect(1, 2);
    auto sb = decode_superblock({node(2).journal.data(), block_size});
    ASSERT_TRUE(sb);
    node(2).journal[sb->ring_offset + sb->tail_pos.v + 9 * block_size] ^= std::byte{1};
    restart(2);
  }
};

TEST_F(DamageTest, TheRecordsComeBackFromTheOtherReplica) {
  rot_in_the_middle();
  EXPECT_TRUE(status(node(2)).inconsistent);
  EXPECT_LT(status(node(2)).last, status(node(1)).last);
  std::size_t from = node(1).sent.size();
  connect(1, 2);
  exchange();
  EXPECT_FALSE(status(node(2)).inconsistent);
  EXPECT_EQ(blocks_sent(1, from) + messages<SyncCheck>(1, from), 0u) << "records only";
  EXPECT_EQ(status(node(2)).last, status(node(1)).last);
  expect_equal();
}

// Found by the simulator. The newest epoch known here counts the primary, which does not have it. The damage
// came before any record was known to be committed, so every history holds all committed records.
TEST_F(DamageTest, WhereNothingWasKnownToBeCommittedEveryHistoryHasIt) {
  for (ReplicaSet in_sync : {set_of(1) | set_of(2), set_of(2)}) {
    rot_in_the_middle();
    auto sb = decode_superblock({node(2).journal.data(), block_size});
    auto* damaged = sb ? std::get_if<disk_state::Damaged>(&sb->disk) : nullptr;
    ASSERT_TRUE(damaged);
    damaged->until = {};
    damaged->of.reset();
    damaged->newest = EpochEntry{
        {status(node(1)).epoch.counter, Uuid::parse("6f3b1c52-8d0e-4a77-9c55-2f6f0e1d7a31").value()},
        Lsn{19},
        2,
        in_sync};
    node(2).write_superblock(*sb);
    restart(2);
    connect(1, 2);
    exchange();
    bool counts = (in_sync & set_of(1)) != 0;
    EXPECT_EQ(status(node(2)).peers[0].split_brain, !counts) << status(node(2)).peers[0].why;
    EXPECT_EQ(status(node(2)).inconsistent, !counts);
    if (counts) expect_equal();
  }
}

TEST_F(DamageTest, ItIsNotPromotedUnlessTheLossIsAccepted) {
  rot_in_the_middle();
  for (bool force : {false, true}) {
    auto refused = promote(2, force);
    ASSERT_TRUE(refused && !refused->ok);
    EXPECT_NE(refused->text.find("--accept-loss"), std::string::npos) << refused->text;
  }
  node(2).step(Promote{9, true, true});
  exchange();
  EXPECT_TRUE(node(2).commands.back().ok) << node(2).commands.back().text;
  EXPECT_EQ(status(node(2)).role, Role::primary);
  EXPECT_FALSE(status(node(2)).inconsistent);
  auto sb = decode_superblock({node(2).journal.data(), block_size});
  ASSERT_TRUE(sb);
  EXPECT_EQ(sb->disk, DiskState());
}

// Parts of lost records may be in the data area. No sync has made them durable yet.
TEST_F(DamageTest, WhatALossLeavesIsDurableBeforeItIsShown) {
  rot_in_the_middle();
  node(2).held = [](Disk kind) { return kind == Disk::home_sync; };
  node(2).step(Promote{9, true, true});
  exchange();
  EXPECT_TRUE(node(2).commands.empty());
  EXPECT_EQ(status(node(2)).role, Role::secondary);
  node(2).held = nullptr;
  exchange();
  ASSERT_FALSE(node(2).commands.empty());
  EXPECT_TRUE(node(2).commands.back().ok) << node(2).commands.back().text;
}

// Since the loss, replica 2 followed a primary that reported the state of replica 3. This says nothing about
// blocks of lost records.
TEST_F(DamageTest, WhatWasHeardBeforeALossIsForgottenToo) {
  make_promoted(1, 3, OnPeerLoss::go_on);
  fill(1, 0, 5, 3);
  fill(1, 10, 15, 4);
  for (ReplicaId id : {1, 2, 3}) checkpoint(id);
  fill(1, 30, 35, 0x77);
  fill(1, 50, 55, 6);
  disconnect(1, 2);
  disconnect(1, 3);
  disconnect(2, 3);
  exchange();
  fill(1, 40, 45, 5);
  rot(2, 0x77);
  // Replica 2 gets only the notice that its records are committed.
  lost = [](ReplicaId to, const PeerMessage& m) {
    return to == 2 && (std::holds_alternative<Commit>(m) || std::holds_alternative<RecordMessage>(m));
  };
  std::size_t from = node(2).sent.size();
  connect(1, 2);
  exchange();
  std::optional<LogMark> last;
  for (; from < node(2).sent.size() && !last; ++from)
    if (auto* state = std::get_if<NodeState>(&node(2).sent[from])) last = state->last;
  ASSERT_TRUE(last && last->lsn == status(node(2)).commit);
  ASSERT_EQ(status(node(2)).peers[0].connection, ConnectionState::Connected);
  node(2).input(1, Commit{status(node(1)).epoch, *last});
  exchange();
  disconnect(1, 2);
  lost = nullptr;
  node(2).step(Promote{9, true, true});
  exchange();
  ASSERT_TRUE(node(2).commands.back().ok) << node(2).commands.back().text;
  auto sb = decode_superblock({node(2).journal.data(), block_size});
  ASSERT_TRUE(sb);
  for (const DirtySlot& slot : sb->dirty) EXPECT_FALSE(slot.known) << slot.peer;
}

// Replica 3 has a part of the records of replica 2, and no others. Replica 2 fills replica 3, however far
// back its journal reaches.
TEST_F(DamageTest, WhoStandsBeforeALossIsNoSplitBrain) {
  make_promoted(1, 3, OnPeerLoss::go_on);
  for (std::uint64_t i = 0; i < 4; ++i) fill(1, 10 * i, 10 * i + 5, 20 + static_cast<int>(i));
  disconnect(1, 3);
  disconnect(2, 3);
  exchange();
  ASSERT_GT(status(node(3)).commit, Lsn{1});
  for (std::uint64_t i = 4; i < 8; ++i) fill(1, 10 * i, 10 * i + 5, 20 + static_cast<int>(i));
  // Replica 2 is created again and gets back a part of the records. Replica 1 only sees a new connection, and
  // has not removed replica 2.
  lose_disk(2);
  std::size_t records = 0;
  lost = [&](ReplicaId to, const PeerMessage& m) {
    return to == 2 && std::holds_alternative<RecordMessage>(m) && ++records > 7;
  };
  connect(1, 2);
  exchange();
  disconnect(1, 2);
  lost = nullptr;
  exchange();
  ASSERT_GT(status(node(2)).last, status(node(3)).commit);
  ASSERT_EQ(status(node(2)).tail, Lsn{0});
  ASSERT_TRUE(promote(2, true)->ok);
  connect(2, 3);
  exchange();
  EXPECT_FALSE(status(node(3)).peers[1].split_brain) << status(node(3)).peers[1].why;
  EXPECT_GT(messages<SyncBegin>(2, 0), 0u);
  checkpoint(2), checkpoint(3);
  EXPECT_EQ(node(3).data, node(2).data);
}

// Blocks of a lost record were already in the data area. Another replica with the same records has other
// blocks.
TEST_F(DamageTest, WhatALossLeavesInTheDataAreaIsOnAllReplicas) {
  using Case = std::pair<bool, bool>;
  for (auto [behind, tail_moved] :
       {Case{false, false}, Case{true, false}, Case{false, true}, Case{true, true}}) {
    make_promoted(1, 3, OnPeerLoss::go_on);
    fill(1, 0, 5, 3);
    disconnect(1, 2);
    disconnect(2, 3);
    exchange();
    fill(1, 10, 15, 4);
    if (behind) fill(1, 20, 25, 5);
    disconnect(1, 3);
    exchange();
    if (tail_moved) checkpoint(1);  // from now on, the tail does not move and no marks are written
    // The record of blocks 30 to 35 is lost after it was written home.
    fill(1, 30, 35, 0x77);
    checkpoint(1);
    fill(1, 40, 45, 6);
    rot(1, 0x77);
    node(1).step(Promote{9, true, true});
    exchange();
    ASSERT_TRUE(node(1).commands.back().ok) << node(1).commands.back().text;
    connect(1, 2);
    exchange();
    checkpoint(1), checkpoint(2);
    EXPECT_EQ(node(2).data, node(1).data);
  }
}

// The source sends the content of records that its journal has lost.
TEST_F(DamageTest, ASourceWithADamagedJournalSendsContent) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  fill(1, 0, 5, 3);
  disconnect(1, 2);
  exchange();
  for (int i = 0; i < 6; ++i)
    fill(1, 10 * static_cast<std::uint64_t>(i), 10 * static_cast<std::uint64_t>(i) + 5, 20 + i);
  node(1).fault = [](Disk kind) { return kind == Disk::journal_read ? EIO : 0; };
  std::size_t from = node(1).sent.size();
  connect(1, 2);
  exchange();
  node(1).fault = nullptr;
  EXPECT_NE(status(node(1)).peers[0].why.find("cannot be read"), std::string::npos);
  disconnect(1, 2);
  connect(1, 2);
  exchange();
  EXPECT_GT(blocks_sent(1, from), 0u);
  expect_equal();
}

}  // namespace
}  // namespace twinloft::repl::core
