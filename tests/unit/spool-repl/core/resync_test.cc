// Resync: whole volumes and bitmaps, interruptions, changes of the source.
#include <gtest/gtest.h>

#include <cerrno>

#include "resync.h"

namespace twinloft::repl::core {
namespace {

TEST_F(ResyncTest, ALostDiskIsFilledFromTheOtherReplica) {
  make_pair();
  disconnect(1, 2);
  lose_disk(2);
  connect(1, 2);
  exchange();
  EXPECT_EQ(node(2).data, node(1).data) << "after checkpoints of both";
  EXPECT_FALSE(status(node(2)).inconsistent);
  EXPECT_EQ(status(node(1)).in_sync, set_of(1) | set_of(2)) << "removed during its resync, and added again";
  fill(1, 10, 20, 4);
  expect_equal();
}

TEST_F(ResyncTest, WritesDuringTheResyncArriveOnceAndLast) {
  make_pair();
  disconnect(1, 2);
  lose_disk(2);
  // The target's writes are held, while clients continue on the source.
  node(2).held = [](Disk kind) { return kind == Disk::home_write; };
  connect(1, 2);
  exchange();
  EXPECT_TRUE(status(node(2)).inconsistent);
  EXPECT_EQ(status(node(1)).in_sync, set_of(1));
  PeerStatus target = status(node(1)).peers.at(0), source = status(node(2)).peers.at(0);
  EXPECT_TRUE(target.sync_target && source.sync_source);
  EXPECT_EQ(source.sync_total_blocks, target.sync_total_blocks) << "both know the progress";
  EXPECT_EQ(source.sync_total_blocks, 1024u);
  EXPECT_GT(source.synced_blocks, 0u);
  EXPECT_LE(source.synced_blocks, target.synced_blocks);
  fill(1, 0, 40, 7);
  checkpoint(1);
  fill(1, 20, 60, 8);
  EXPECT_TRUE(status(node(2)).inconsistent);
  node(2).held = nullptr;
  exchange();
  expect_equal();
}

// The set never gets smaller than min_in_sync. Uncommitted records are committed by then, because the resync
// waits for this.
TEST_F(ResyncTest, AMemberThatCannotBeLeftOutIsFilledToo) {
  make(2, Arbiter::manual, OnPeerLoss::suspend, 2);
  connect_all();
  exchange();
  ASSERT_TRUE(promote(1)->ok);
  fill(1, 0, 300, 3);
  checkpoint(1);
  node(2).held = [](Disk kind) { return kind == Disk::journal_write; };
  auto flush = write_flush(1, 5);
  exchange();
  EXPECT_FALSE(node(1).is_done(flush));
  disconnect(1, 2);
  lose_disk(2);
  connect(1, 2);
  exchange();
  EXPECT_FALSE(status(node(2)).inconsistent);
  EXPECT_FALSE(status(node(1)).suspended);
  EXPECT_TRUE(node(1).is_done(flush));
  expect_equal();
}

TEST_F(ResyncTest, AnInterruptedResyncIsNoReplicaAndBeginsAgain) {
  make_pair();
  disconnect(1, 2);
  lose_disk(2);
  node(2).held = [](Disk kind) { return kind == Disk::home_write; };
  connect(1, 2);
  exchange();
  disconnect(1, 2);
  node(2).held = nullptr;
  restart(2);
  EXPECT_TRUE(status(node(2)).inconsistent) << "a restart does not complete it";
  expect_not_promoted(2, "Inconsistent", true);
  connect(1, 2);
  exchange();
  EXPECT_FALSE(status(node(2)).inconsistent);
  expect_equal();
}

// The source is lost before the resync ends. The incomplete content is not a history that must be kept.
TEST_F(ResyncTest, WhatAnInterruptedResyncLeftIsNoSplitBrain) {
  for (bool from_the_beginning : {false, true}) {
    if (from_the_beginning) {
      make(2);
      ASSERT_TRUE(promote(1, true)->ok);
      fill(1, 0, 300, 3);
    } else {
      make_pair();
      disconnect(1, 2);
      lose_disk(2);
    }
    node(2).held = [](Disk kind) { return kind == Disk::home_write || kind == Disk::home_sync; };
    connect(1, 2);
    exchange();
    fill(1, 10, 20, 4);
    disconnect(1, 2);
    exchange();
    ASSERT_TRUE(status(node(2)).inconsistent);
    ASSERT_GT(status(node(2)).commit, Lsn{0});
    lose_disk(1);
    ASSERT_TRUE(promote(1, true)->ok);
    fill(1, 0, 5, 9);
    connect(1, 2);
    exchange();
    EXPECT_FALSE(status(node(2)).peers[0].split_brain) << status(node(2)).peers[0].why;
    node(2).held = nullptr;
    exchange();
    expect_equal();
  }
}

// The target holds an incomplete history. This refusal must not end the process.
TEST_F(ResyncTest, BeginBelowTheCommitPointOfAnUnfinishedResyncIsRefused) {
  make_pair();
  disconnect(1, 2);
  lose_disk(2);
  node(2).held = [](Disk kind) { return kind == Disk::home_write || kind == Disk::home_sync; };
  connect(1, 2);
  exchange();
  ASSERT_TRUE(status(node(2)).inconsistent);
  Superblock sb = decode_superblock({node(2).journal.data(), block_size}).value();
  fill(1, 10, 20, 4);
  fill(1, 20, 30, 5);
  ASSERT_GT(status(node(2)).commit, sb.tail.lsn);
  Epoch epoch = status(node(1)).epoch;
  disconnect(1, 2);
  exchange();
  node(2).step(PeerUp{1});
  node(2).input(1, MatchRequest{epoch});
  node(2).input(1, Begin{epoch, sb.tail, {}, sb.epochs});
  ASSERT_FALSE(node(2).closed.empty());
  EXPECT_NE(node(2).closed.back().reason.find("has committed LSN"), std::string::npos)
      << node(2).closed.back().reason;
  EXPECT_FALSE(status(node(2)).peers[0].split_brain);
}

// The replica was complete up to the start of a partial resync. No other replica has that content, so it is a
// side of the split brain.
TEST_F(BitmapTest, WhatWasCompleteBeforeAnInterruptedResyncIsKept) {
  leave_behind(3, false, {2, 3});
  checkpoint(2), checkpoint(3);
  Lsn base = status(node(2)).last;
  ASSERT_GT(base, Lsn{0});
  node(2).held = [](Disk kind) { return kind == Disk::home_write; };
  connect(1, 2);
  exchange();
  ASSERT_TRUE(status(node(2)).inconsistent);
  disconnect(1, 2);
  node(2).held = nullptr;
  exchange();
  lose_disk(3);
  ASSERT_TRUE(promote(3, true)->ok);
  fill(3, 0, 5, 9);
  connect(2, 3);
  exchange();
  EXPECT_TRUE(status(node(2)).peers[1].split_brain) << status(node(2)).peers[1].why;
  EXPECT_TRUE(status(node(2)).inconsistent);
  // This side can be discarded.
  node(2).step(Discard{7, true});
  disconnect(2, 3);
  connect(2, 3);
  exchange();
  ASSERT_FALSE(node(2).commands.empty());
  EXPECT_TRUE(node(2).commands.back().ok) << node(2).commands.back().text;
  checkpoint(2), checkpoint(3);
  EXPECT_FALSE(status(node(2)).inconsistent);
  EXPECT_EQ(node(2).data, node(3).data);
}

// An unfinished resync continues from another primary, promoted by force, and then from the first primary
// again. The first primary does not know what the other primary has written.
TEST_F(BitmapTest, WhatAnotherHistoryHasLeftIsOverwritten) {
  for (bool restarted : {false, true}) {
    leave_behind(3);
    node(2).held = [](Disk kind) { return kind == Disk::home_sync; };
    connect(1, 2);
    exchange();
    ASSERT_TRUE(status(node(2)).inconsistent);
    for (ReplicaId other : {2, 3}) disconnect(1, other);
    exchange();
    fill(1, 700, 701, 8);
    connect(2, 3);
    ASSERT_TRUE(promote(3, true)->ok);
    fill(3, 600, 601, 9);
    node(2).held = nullptr;
    bool home = false;
    auto is_home = [&] { return home = node(2).data[600 * block_size] == std::byte{9}; };
    node(2).step(CheckpointNow{});
    exchange(is_home);
    ASSERT_TRUE(home && status(node(2)).inconsistent);
    disconnect(2, 3);
    if (restarted) {
      restart(2);
    }
    connect(1, 2);
    exchange();
    EXPECT_EQ(status(node(1)).in_sync, set_of(1) | set_of(2)) << status(node(1)).peers[0].why;
    checkpoint(1), checkpoint(2);
    EXPECT_EQ(node(1).data, node(2).data);
  }
}

// Also if no new commit makes the checkpointer write the superblock first.
TEST_F(BitmapTest, WhoseContentItIsIsDurableBeforeItIsHome) {
  leave_behind(3);
  node(2).held = [](Disk kind) { return kind == Disk::home_write; };
  connect(1, 2);
  exchange();
  ASSERT_TRUE(status(node(2)).inconsistent);
  for (ReplicaId other : {2, 3}) disconnect(1, other);
  exchange();
  restart(2);
  node(2).held = [](Disk kind) { return kind == Disk::superblock || kind == Disk::home_write; };
  lost = [](ReplicaId, const PeerMessage& m) { return std::holds_alternative<Commit>(m); };
  connect(2, 3);
  ASSERT_TRUE(promote(3, true)->ok);
  node(2).step(CheckpointNow{});
  exchange();
  ASSERT_GT(messages<SyncData>(3, 0), 0u);
  EXPECT_EQ(node(2).pending(Disk::home_write), 0u);
  node(2).held = [](Disk kind) { return kind == Disk::home_write; };
  exchange();
  EXPECT_GT(node(2).pending(Disk::home_write), 0u);
}

TEST_F(ResyncTest, ConsistentIsSaidOnlyWhenItIsOnTheDisk) {
  make_pair();
  disconnect(1, 2);
  lose_disk(2);
  connect(1, 2);
  std::size_t seen = 0;
  bool was_inconsistent = false, said = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (ReplicaId from : {1u, 2u})
      while (delivered[from - 1] < node(from).sent.size()) {
        std::size_t i = delivered[from - 1]++;
        node(3 - from).input(from, node(from).sent[i]);
        moved = true;
      }
    moved = node(1).complete_one() || moved;
    moved = node(2).complete_one() || moved;
    for (; seen < node(2).sent.size(); ++seen) {
      auto* state = std::get_if<NodeState>(&node(2).sent[seen]);
      if (!state) continue;
      was_inconsistent = was_inconsistent || state->inconsistent;
      if (!was_inconsistent || state->inconsistent) continue;
      said = true;
      for (std::uint64_t at : superblock_offset) {
        auto sb = decode_superblock({node(2).journal.data() + at, block_size});
        ASSERT_TRUE(sb);
        EXPECT_EQ(sb->disk, DiskState());
      }
    }
  }
  EXPECT_TRUE(said);
}

TEST_F(ResyncTest, AnEmptyPrimaryOverwritesNobody) {
  make_pair();
  fill(1, 0, 10, 5);
  disconnect(1, 2);
  lose_disk(1);
  ASSERT_TRUE(promote(1, true)->ok) << "by force, with an empty disk";
  auto before = node(2).data;
  connect(1, 2);
  exchange();
  EXPECT_FALSE(status(node(2)).inconsistent);
  EXPECT_TRUE(status(node(2)).peers[0].split_brain) << status(node(2)).peers[0].why;
  EXPECT_EQ(node(2).data, before);
}

TEST_F(ResyncTest, AReplacedReplicaIsNotPromotedOverTheOneThatHasTheData) {
  make_pair();
  node(1).step(Demote{5});
  exchange();
  disconnect(1, 2);
  lose_disk(2);
  connect(1, 2);
  exchange();
  expect_not_promoted(2, "replica 2 is empty, and replica 1 is not");
  ASSERT_TRUE(promote(1)->ok);
  expect_equal();
}

// The member restarted, and does not know which of its records are committed. Only replica 1 knows, and its
// disk is lost.
TEST_F(ResyncTest, AnEmptyReplicaIsNotPromotedOverARestartedMember) {
  make_promoted(1, 2);
  disconnect(1, 2);
  restart(2);
  ASSERT_EQ(status(node(2)).commit, Lsn{0});
  ASSERT_GT(status(node(2)).last, Lsn{0});
  lose_disk(1);
  connect(1, 2);
  exchange();
  expect_not_promoted(1, "replica 1 is empty, and replica 2 is not");
  EXPECT_TRUE(promote(2)->ok);
}

// The journal reaches back to the beginning, so a new disk is filled by records. Until it has all records
// that its predecessor acknowledged, it looks like any prefix, and must not be promoted.
TEST_F(ResyncTest, AReplicaThatWasMadeAnewIsNotPromotedWithAPartOfTheLog) {
  make_promoted(1, 2);
  for (int i = 0; i < 6; ++i)
    fill(1, 10 * static_cast<std::uint64_t>(i), 10 * static_cast<std::uint64_t>(i) + 5, 20 + i);
  disconnect(1, 2);
  lose_disk(2);
  node(2).held = [](Disk kind) { return kind == Disk::journal_write; };
  connect(1, 2);
  exchange();
  node(2).held = nullptr;
  while (status(node(2)).durable < Lsn{3}) ASSERT_TRUE(node(2).complete_one());
  ASSERT_LT(status(node(2)).durable, status(node(1)).last);
  disconnect(1, 2);
  restart(2);
  expect_not_promoted(2, "replica 2 was recreated and is not complete yet");
  connect(1, 2);
  exchange();
  EXPECT_EQ(status(node(2)).durable, status(node(1)).last);
  disconnect(1, 2);
  auto refused = promote(2);
  ASSERT_TRUE(refused && !refused->ok);
  EXPECT_EQ(refused->text.find("recreated"), std::string::npos) << refused->text;
  ASSERT_TRUE(promote(2, true)->ok);
}

// The records that a recreated replica lacks may never have been committed. A replica that was promoted since
// had every committed record.
TEST_F(ResyncTest, ALaterPromotionEndsWhatAReplicaThatWasMadeAnewLacked) {
  make(2);
  node(2).step(PeerUp{1});
  Epoch first{1, Uuid::generate(node(2).random)};
  node(2).input(1, MatchRequest{first});
  node(2).input(1, Begin{first, {Lsn{0}, genesis_hash(Shell::volume(), 1024)}, Lsn{100}, {}});
  while (node(2).complete_one()) {
  }
  node(2).step(PeerDown{1});
  expect_not_promoted(2, "up to LSN 100");
  delivered[1] = node(2).sent.size();
  connect(1, 2);
  exchange();
  ASSERT_TRUE(promote(1)->ok);
  EXPECT_EQ(status(node(1)).epoch.counter, 1u) << "no later primary";
  node(1).step(Demote{4});
  exchange();
  expect_not_promoted(2, "LSN 100");
  ASSERT_TRUE(promote(1)->ok);
  ASSERT_LT(status(node(2)).durable, Lsn{100});
  node(1).step(Demote{4});
  exchange();
  auto granted = promote(2);
  EXPECT_TRUE(granted && granted->ok) << (granted ? granted->text : "no answer");
}

TEST_F(ResyncTest, ASourceThatCannotReadSaysSo) {
  make_pair();
  disconnect(1, 2);
  lose_disk(2);
  node(1).fault = [](Disk kind) { return kind == Disk::home_read ? EIO : 0; };
  connect(1, 2);
  exchange();
  EXPECT_NE(status(node(1)).peers[0].why.find("cannot be read"), std::string::npos)
      << status(node(1)).peers[0].why;
  EXPECT_TRUE(status(node(2)).inconsistent);
}

// ---- bitmaps

TEST_F(BitmapTest, OnlyWhatWasWrittenMeanwhileIsSent) {
  leave_behind(2);
  std::size_t from = node(1).sent.size();
  EXPECT_EQ(status(node(1)).peers[0].dirty_blocks, 78u);
  connect(1, 2);
  exchange();
  EXPECT_EQ(blocks_sent(1, from), 78u);
  EXPECT_EQ(messages<SyncCheck>(1, from), 0u) << "no block to compare: the disk is new";
  expect_equal();
  EXPECT_EQ(status(node(1)).in_sync, set_of(1) | set_of(2));
  fill(1, 0, 2, 9);
  checkpoint(1);
  EXPECT_EQ(status(node(1)).peers[0].dirty_blocks, 0u) << "no block is dirty for a member";
}

TEST_F(BitmapTest, TheMarksSurviveACrashOfTheSource) {
  leave_behind(2);
  restart(1);
  ASSERT_TRUE(promote(1, true)->ok);
  std::size_t from = node(1).sent.size();
  EXPECT_EQ(status(node(1)).peers[0].dirty_blocks, 78u);
  connect(1, 2);
  exchange();
  EXPECT_GT(blocks_sent(1, from), 0u);
  EXPECT_LE(blocks_sent(1, from), 78u) << "the journal's records are sent as records";
  expect_equal();
}

TEST_F(BitmapTest, ADamagedPageCostsTimeOnly) {
  leave_behind(2);
  auto sb = decode_superblock({node(1).journal.data(), block_size});
  ASSERT_TRUE(sb);
  for (std::uint32_t slot = 0; slot < bitmap_slots; ++slot)
    node(1).journal[sb->bitmap_offset + slot * sb->bitmap_bytes + 100] ^= std::byte{1};
  restart(1);
  ASSERT_TRUE(promote(1, true)->ok);
  EXPECT_EQ(status(node(1)).peers[0].dirty_blocks, 1024u);
  connect(1, 2);
  exchange();
  expect_equal();
}

TEST_F(BitmapTest, ASecondaryThatTakesOverHasMarksOfItsOwn) {
  leave_behind(3);
  node(1).step(Demote{4});
  exchange();
  ASSERT_TRUE(promote(3)->ok);
  std::size_t from = node(3).sent.size();
  connect(2, 3);
  exchange();
  EXPECT_GE(blocks_sent(3, from), 78u);
  EXPECT_LT(blocks_sent(3, from), 300u);
  connect(1, 2);
  exchange();
  expect_equal();
}

TEST_F(BitmapTest, TheSourceChangesInTheMiddle) {
  leave_behind(3);
  node(2).held = [](Disk kind) { return kind == Disk::home_write || kind == Disk::home_zero; };
  connect(1, 2);
  exchange();
  ASSERT_TRUE(status(node(2)).inconsistent);
  fill(1, 600, 610, 77);
  node(1).step(Demote{4});
  exchange();
  disconnect(1, 2);
  node(2).held = nullptr;
  ASSERT_TRUE(promote(3)->ok);
  std::size_t from = node(3).sent.size();
  connect(2, 3);
  exchange();
  EXPECT_GT(messages<SyncCheck>(3, from), 0u) << "the content from the first source need not come again";
  EXPECT_LT(messages<SyncCheck>(3, from), 10u) << "not a full resync";
  connect(1, 2);
  exchange();
  expect_equal();
}

// The bitmap describes the previous replica, not the new disk.
TEST_F(BitmapTest, AReplacedDiskGetsEverything) {
  leave_behind(2);
  lose_disk(2);
  std::size_t from = node(1).sent.size();
  connect(1, 2);
  exchange();
  EXPECT_EQ(messages<SyncCheck>(1, from), 1024u / 64);
  EXPECT_GE(blocks_sent(1, from), 300u);
  EXPECT_LT(blocks_sent(1, from), 500u) << "zeros are there already";
  expect_equal();
}

TEST_F(BitmapTest, InterruptedOnANewDiskItStillGetsEverything) {
  leave_behind(2);
  lose_disk(2);
  node(2).held = [](Disk kind) { return kind == Disk::home_write; };
  connect(1, 2);
  exchange();
  ASSERT_TRUE(status(node(2)).inconsistent);
  disconnect(1, 2);
  node(2).held = nullptr;
  restart(2);
  std::size_t from = node(1).sent.size();
  connect(1, 2);
  exchange();
  EXPECT_EQ(messages<SyncCheck>(1, from), 1024u / 64);
  expect_equal();
}

// Equal content may be in the disk's cache only.
TEST_F(BitmapTest, ConsistentComesAfterASync) {
  leave_behind(2);
  bool synced = false;
  node(2).fault = [&](Disk kind) {
    synced = synced || kind == Disk::home_sync;
    return 0;
  };
  lose_disk(2);
  node(2).held = [](Disk kind) { return kind == Disk::home_sync; };
  connect(1, 2);
  exchange();
  EXPECT_TRUE(status(node(2)).inconsistent);
  node(2).held = nullptr;
  exchange();
  EXPECT_FALSE(status(node(2)).inconsistent);
}

// During the resync, the target acknowledges records. This says nothing about the blocks that are still
// missing.
TEST_F(BitmapTest, AcksDuringAResyncThatIsCutOffProveNothing) {
  leave_behind(2);
  node(2).held = [](Disk kind) { return kind == Disk::home_write || kind == Disk::home_zero; };
  connect(1, 2);
  exchange();
  fill(1, 600, 610, 77);
  ASSERT_EQ(status(node(1)).peers[0].durable, status(node(1)).last);
  disconnect(1, 2);
  checkpoint(1);
  EXPECT_GE(status(node(1)).peers[0].dirty_blocks, 78u);
  node(2).held = nullptr;
  connect(1, 2);
  exchange();
  expect_equal();
}

// The source is lost while the target archives its records. The next primary needs no resync.
TEST_F(BitmapTest, ANewPrimaryThatBeginsDuringTheArchiveIsFollowed) {
  make_promoted(1, 3);
  fill(1, 0, 5, 3);
  checkpoint(1);
  disconnect(1, 2);
  disconnect(2, 3);
  node(2).restart();
  ASSERT_LT(status(node(2)).commit, status(node(2)).last);
  auto source = decode_superblock({node(1).journal.data(), block_size});
  ASSERT_TRUE(source);
  Epoch newer{status(node(1)).epoch.counter + 5, Uuid::generate(node(2).random)};
  node(2).held = [](Disk kind) { return kind == Disk::archive; };
  node(2).step(PeerUp{1});
  node(2).input(1, MatchRequest{newer});
  node(2).input(1, SyncBegin{newer, {Lsn{1000}, {}}, newer, true, {}, {}, source->epochs});
  ASSERT_EQ(node(2).pending(Disk::archive), 1u);
  node(2).step(PeerDown{1});
  node(2).step(PeerUp{3});
  newer.counter++;
  node(2).input(3, MatchRequest{newer});
  auto& state = std::get<MatchState>(node(2).sent.back());
  node(2).input(3, Begin{newer, state.last, {}, {}});
  node(2).held = nullptr;
  while (node(2).complete_one()) {
  }
  EXPECT_EQ(status(node(2)).peers[1].connection, ConnectionState::Connected);
}

// Records that count as uncommitted after a restart may have been committed and written home, into a cache
// that was never synced.
TEST_F(BitmapTest, AfterARestartWithUncommittedRecordsEqualBlocksAreWrittenAgain) {
  leave_behind(2, true);
  node(2).restart();
  ASSERT_LT(status(node(2)).commit, status(node(2)).last);
  delivered[1] = node(2).sent.size();
  node(2).held = [](Disk kind) { return kind == Disk::superblock; };
  connect(1, 2);
  exchange();
  disconnect(1, 2);
  node(2).held = nullptr;
  exchange();
  connect(1, 2);
  node(2).held = [](Disk kind) { return kind == Disk::home_sync; };
  exchange();
  ASSERT_TRUE(status(node(2)).inconsistent);
  disconnect(1, 2);
  node(2).held = nullptr;
  exchange();
  std::size_t from = node(1).sent.size();
  std::uint64_t before = status(node(2)).home_blocks_written;
  connect(1, 2);
  exchange();
  EXPECT_GT(messages<SyncCheck>(1, from), 0u);
  EXPECT_EQ(blocks_sent(1, from), 0u) << "all content is there already";
  EXPECT_GE(status(node(2)).home_blocks_written - before, 78u) << "the content is written again";
  expect_equal();
}

// A connected replica gets its records from the journal until the ring is full, whether it is a member or
// not.
TEST_F(BitmapTest, TheJournalIsKeptForOneThatCatchesUp) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  disconnect(1, 2);
  exchange();
  fill(1, 400, 450, 1);
  node(2).held = [](Disk kind) { return kind == Disk::journal_write; };
  connect(1, 2);
  exchange();
  for (int round = 0; round < 40; ++round) fill(1, 400, 450, round), checkpoint(1);
  EXPECT_GE(status(node(1)).journal_used, status(node(1)).journal_size / 2 - 64 * block_size)
      << "more than is kept for an absent replica";
  EXPECT_LE(status(node(1)).tail, status(node(1)).peers[0].durable);
  node(2).held = nullptr;
  exchange();
  EXPECT_EQ(messages<SyncBegin>(1, 0), 0u);
  expect_equal();
}

// The marks are on the disk before the journal drops the records.
TEST_F(BitmapTest, TheTailWaitsForTheMarks) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  fill(1, 0, 10, 3);
  checkpoint(1);
  disconnect(1, 2);
  exchange();
  Lsn tail = status(node(1)).tail;
  node(1).held = [](Disk kind) { return kind == Disk::bitmap; };
  for (int round = 0; round < 40 && node(1).pending(Disk::bitmap) == 0; ++round)
    fill(1, 100, 140, round + 1), checkpoint(1);
  EXPECT_GT(node(1).pending(Disk::bitmap), 0u);
  Lsn waiting = status(node(1)).tail;
  EXPECT_LT(waiting, status(node(1)).commit);
  node(1).held = nullptr;
  exchange();
  EXPECT_GT(status(node(1)).tail, std::max(tail, waiting));
}

}  // namespace
}  // namespace twinloft::repl::core
