// What happens beside a resync, at the worst moment of it. Each of these fails without one rule of the core that the simulator needs
// more than 2,000 seeds to miss (docs/simulator.md).
#include <gtest/gtest.h>

#include "resync.h"

namespace twinloft::repl::core {
namespace {

// The record has reached the replica already, so what the read found must not come after it.
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
}

// What came by a resync came with no record. When the replica says that it is consistent, a third one can be filled from it.
TEST_F(BitmapTest, TheMarksOfAResyncAreThereWhenItEnds) {
  leave_behind(3, false, {2, 3});
  fill(1, 600, 610, 7);  // long enough ago that no record tells of it
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 8; ++i) fill(1, 400, 450, 60 + round + i);
    checkpoint(1);
  }
  std::uint64_t lacks = status(node(1)).peers[1].dirty_blocks;
  ASSERT_GT(lacks, 0u);
  // The records first: a checkpoint that moves the tail over them would bring the marks along.
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

// The connection came back while a record for the one before was being read.
TEST_F(BitmapTest, ARecordThatWasReadForAnEarlierConnectionIsNotSent) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  disconnect(1, 2);
  exchange();
  for (int i = 0; i < 5; ++i) fill(1, 10, 12, i + 1);
  node(1).held = [](Disk kind) { return kind == Disk::journal_read; };
  connect(1, 2);
  exchange();
  ASSERT_EQ(node(1).pending(Disk::journal_read), 1u);
  // It gets on by one record before it is lost again, so that the two reads are of different ones.
  node(1).held = nullptr;
  ASSERT_TRUE(node(1).complete_one());
  node(1).held = [](Disk kind) { return kind == Disk::journal_read; };
  exchange();
  disconnect(1, 2);
  node(2).restart();
  delivered[1] = node(2).sent.size();
  connect(1, 2);
  exchange();
  std::size_t reads = node(1).pending(Disk::journal_read);
  EXPECT_EQ(reads, 2u);
  node(1).held = nullptr;
  exchange();
  for (const std::string& notice : node(1).notices) EXPECT_EQ(notice.find("damaged"), std::string::npos) << notice;
  EXPECT_EQ(messages<SyncBegin>(1, 0), 0u);
  expect_equal();
}

// Put back from an old copy, a replica lacks more than the bitmap tells, which begins where that replica was seen last.
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
  node(2).restart();
  delivered[1] = node(2).sent.size();
  connect(1, 2);
  exchange();
  expect_equal();
}

}  // namespace
}  // namespace twinloft::repl::core
