// Events during a resync, at the worst moment. Each test fails if one rule of the core is missing. The
// simulator needs more than 2,000 seeds to notice such a rule (docs/simulator.md).
#include <gtest/gtest.h>

#include "resync.h"

namespace twinloft::repl::core {
namespace {

// The replica already has the newer record, so the older content of the read must not follow.
TEST_F(BitmapTest, ABlockThatWasWrittenHomeWhileItWasReadIsReadAgain) {
  leave_behind(2);
  node(1).reads_at_once = true;
  node(1).held = [](Disk kind) { return kind == Disk::home_read; };
  connect(1, 2);
  exchange();
  ASSERT_GT(node(1).pending(Disk::home_read), 0u);
  fill(1, 400, 402, 99);
  checkpoint(1), checkpoint(2);
  node(1).held = nullptr;
  exchange();
  expect_equal();
  EXPECT_EQ(status(node(1)).wrong_blocks, 0u) << "the block is not damaged, only newer";
  EXPECT_EQ(status(node(1)).repaired_blocks + status(node(1)).reread_blocks, 0u);
}

// Less than half of a small journal is used, but the largest record fits neither at the end of the ring nor
// at its beginning.
TEST_F(BitmapTest, AJournalWithoutRoomForARecordIsNotKeptForAReplicaThatIsAway) {
  leave_behind(3, false, {2, 3});
  fill(1, 600, 610, 7);
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 8; ++i) fill(1, 400, 450, 60 + round + i);
    checkpoint(1);
    ASSERT_EQ(status(node(1)).waiting_requests, 0u) << "round " << round;
  }
}

// A resync brings content without records. Once the replica reports Consistent, it must be able to fill a
// third replica.
TEST_F(BitmapTest, TheMarksOfAResyncAreThereWhenItEnds) {
  leave_behind(3, false, {2, 3});
  // So long ago that no record of the log here contains these blocks.
  fill(1, 600, 610, 7);
  checkpoint(1);
  Lsn then = status(node(1)).last;
  for (int round = 0; round < 40 && status(node(1)).tail <= then; ++round) {
    for (int i = 0; i < 5; ++i) fill(1, 400, 528, 60 + round + i);
    checkpoint(1);
  }
  ASSERT_GT(status(node(1)).tail, then);
  std::uint64_t lacks = status(node(1)).peers[1].dirty_blocks;
  ASSERT_GT(lacks, 0u);
  // The records come first: a checkpoint that moves the tail over them would also store the marks.
  node(1).held = [](Disk kind) { return kind == Disk::home_read; };
  connect(1, 2);
  exchange();
  checkpoint(2);
  ASSERT_TRUE(status(node(2)).inconsistent);
  node(1).held = nullptr;
  exchange([&] { return !status(node(2)).inconsistent; });
  node(2).restart();
  ASSERT_FALSE(status(node(2)).inconsistent);
  EXPECT_GE(status(node(2)).peers[1].dirty_blocks, lacks) << "of replica 3";
}

// The connection came back during a read of a record for the connection before.
TEST_F(BitmapTest, ARecordThatWasReadForAnEarlierConnectionIsNotSent) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  disconnect(1, 2);
  exchange();
  for (int i = 0; i < 5; ++i) fill(1, 10, 12, i + 1);
  node(1).held = [](Disk kind) { return kind == Disk::journal_read; };
  connect(1, 2);
  exchange();
  ASSERT_EQ(node(1).pending(Disk::journal_read), 1u);
  // The peer gets one more record before the connection is lost again, so the two reads are of different
  // records.
  node(1).held = nullptr;
  ASSERT_TRUE(node(1).complete_one());
  node(1).held = [](Disk kind) { return kind == Disk::journal_read; };
  exchange();
  disconnect(1, 2);
  restart(2);
  connect(1, 2);
  exchange();
  std::size_t reads = node(1).pending(Disk::journal_read);
  EXPECT_EQ(reads, 2u);
  node(1).held = nullptr;
  exchange();
  for (const std::string& notice : node(1).notices)
    EXPECT_EQ(notice.find("damaged"), std::string::npos) << notice;
  EXPECT_EQ(messages<SyncBegin>(1, 0), 0u);
  expect_equal();
}

// The next source does not know yet that the record is committed. Replica 2's log begins after the record,
// and lacks its content.
TEST_F(BitmapTest, AResyncWaitsUntilWhatTheReplicaHasIsCommittedAtItsSource) {
  leave_behind(3);
  Lsn before = status(node(1)).commit;
  lost = [](ReplicaId to, const PeerMessage& m) { return to == 3 && std::holds_alternative<Commit>(m); };
  fill(1, 700, 701, 99);
  for (int round = 0; round < 12; ++round) fill(1, 400, 450, 60 + round), checkpoint(1);
  ASSERT_EQ(status(node(3)).commit, before);
  ASSERT_GT(status(node(3)).last, before);
  ASSERT_GT(status(node(1)).tail, before);
  up[{1, 3}] = false;
  lost = nullptr;
  node(1).held = [](Disk kind) { return kind == Disk::home_read; };
  connect(1, 2);
  exchange();
  ASSERT_TRUE(status(node(2)).inconsistent);
  ASSERT_GT(status(node(2)).tail, before);
  up[{1, 2}] = false;
  restart(1);
  node(2).step(PeerDown{1});
  node(3).step(PeerDown{1});
  node(1).held = nullptr;
  connect(1, 3);
  exchange();
  node(3).step(Promote{77, false});
  exchange([&] { return status(node(3)).role == Role::primary; });
  up[{1, 3}] = false;  // the state of replica 1 is not known yet
  connect(2, 3);
  exchange();
  ASSERT_EQ(status(node(3)).peers[1].connection, ConnectionState::Connected);
  ASSERT_EQ(status(node(3)).commit, before);
  disconnect(1, 3);
  connect(1, 3);
  exchange();
  ASSERT_GT(status(node(3)).commit, before);
  expect_equal();
}

// Replica 2 came back while the tail moved over the record that it needs next. Then the device fails, and the
// record that was being read leaves the log.
TEST_F(BitmapTest, ARecordThatWasReadMayHaveLeftTheLogOfAFailedDevice) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  fill(1, 0, 10, 1);
  disconnect(1, 2);
  exchange();
  node(1).held = [](Disk kind) { return kind == Disk::home_sync; };
  for (int round = 0; round < 100 && status(node(1)).journal_used < status(node(1)).journal_size / 2; ++round)
    fill(1, 400, 450, 10 + round);
  node(1).held = [](Disk kind) { return kind == Disk::superblock || kind == Disk::journal_read; };
  checkpoint(1);
  ASSERT_GT(node(1).pending(Disk::superblock), 0u);
  connect(1, 2);
  exchange();
  ASSERT_EQ(node(1).pending(Disk::journal_read), 1u);
  node(1).fault = [](Disk kind) { return kind == Disk::journal_write ? EIO : 0; };
  write_flush(1, 1);
  exchange();
  ASSERT_TRUE(status(node(1)).failed);
  node(1).held = [](Disk kind) { return kind == Disk::journal_read; };
  exchange();
  node(1).held = nullptr;
  exchange();
  EXPECT_EQ(node(1).pending(Disk::journal_read), 0u);
}

// The connection comes back during each superblock write of the target in turn. The last of them ends the
// resync.
TEST_F(BitmapTest, AConnectionThatComesBackWhileASuperblockIsWrittenIsNoSplitBrain) {
  bool finishing = false;
  for (unsigned upto = 0; !HasFailure(); ++upto) {
    make_pair();
    disconnect(1, 2);
    lose_disk(2);
    unsigned ended = 0;
    node(2).fault = [&](Disk kind) {
      ended += kind == Disk::superblock;
      return 0;
    };
    node(2).held = [&](Disk kind) { return kind == Disk::superblock && ended >= upto; };
    connect(1, 2);
    exchange();
    if (node(2).pending(Disk::superblock) == 0) break;
    auto before = decode_superblock({node(2).journal.data(), block_size});
    disconnect(1, 2);
    connect(1, 2);
    exchange([&] { return status(node(2)).peers[0].split_brain; });
    EXPECT_FALSE(status(node(2)).peers[0].split_brain) << upto << ": " << status(node(2)).peers[0].why;
    node(2).held = [&](Disk kind) { return kind == Disk::superblock && ended > upto; };
    exchange();
    auto after = decode_superblock({node(2).journal.data(), block_size});
    ASSERT_TRUE(before && after);
    finishing = finishing || (is_inconsistent(before->disk) && !is_inconsistent(after->disk));
    node(2).held = nullptr;
    exchange();
    // After a refusal, the network connects again.
    disconnect(1, 2);
    connect(1, 2);
    exchange();
    expect_equal();
  }
  EXPECT_TRUE(finishing) << "no write of them ended the resync";
}

// A replica that was restored from an old copy lacks more than the bitmap shows. The bitmap begins where that
// replica was last seen.
TEST_F(BitmapTest, AReplicaFromAnOldCopyGetsEverything) {
  leave_behind(2);
  std::vector<std::byte> journal = node(2).journal, data = node(2).data;
  connect(1, 2);
  exchange();
  fill(1, 800, 820, 6);
  checkpoint(1), checkpoint(2);
  disconnect(1, 2);
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 8; ++i) fill(1, 400, 450, 60 + round + i);
    checkpoint(1);
  }
  node(2).journal = journal;
  node(2).data = data;
  restart(2);
  connect(1, 2);
  exchange();
  expect_equal();
}

// The superblock that says Consistent may be in flight when the next connection comes. This is not a damaged
// journal.
TEST_F(ResyncTest, AConnectionThatComesWhileTheResyncEndsIsNoSplitBrain) {
  for (int superblocks = 0; superblocks < 6; ++superblocks) {
    make_pair();
    disconnect(1, 2);
    lose_disk(2);
    bool over = false;
    int left = superblocks;
    lost = [&](ReplicaId to, const PeerMessage& m) {
      over = over || (to == 2 && std::holds_alternative<SyncEnd>(m));
      return false;
    };
    node(2).held = [&](Disk kind) { return over && kind == Disk::superblock && left <= 0; };
    node(2).fault = [&](Disk kind) {
      if (over && kind == Disk::superblock) --left;
      return 0;
    };
    connect(1, 2);
    exchange();
    ASSERT_TRUE(over);
    disconnect(1, 2);
    connect(1, 2);
    exchange();
    EXPECT_FALSE(status(node(2)).peers[0].split_brain) << superblocks << ": " << status(node(2)).peers[0].why;
    EXPECT_FALSE(status(node(1)).peers[0].split_brain) << superblocks;
    node(2).held = nullptr;
    node(2).fault = nullptr;
    lost = nullptr;
    exchange();
    disconnect(1, 2);
    connect(1, 2);
    exchange();
    expect_equal();
  }
}

}  // namespace
}  // namespace twinloft::repl::core
