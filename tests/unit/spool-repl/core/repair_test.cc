// Unreadable blocks of the data area: the order of the asked peers, the valid answers, and the end of each
// waiting read.
#include <gtest/gtest.h>

#include <cerrno>

#include "roles.h"

namespace twinloft::repl::core {
namespace {

struct RepairTest : RolesTest {
  static constexpr std::uint64_t first = 4;
  std::vector<std::byte> memory = std::vector<std::byte>(65 * block_size);
  // Not aligned: it is read through scratch memory.
  std::span<std::byte> out{
      memory.data() + (reinterpret_cast<std::uintptr_t>(memory.data()) % block_size == 0 ? 1 : 0),
      64 * block_size};

  std::uint64_t read(ReplicaId id, std::uint64_t block, std::uint32_t blocks = 1) {
    std::fill(out.begin(), out.end(), std::byte{0xee});
    return node(id).submit(ClientOp::read, block * block_size,
                           blocks * static_cast<std::uint32_t>(block_size), out.data());
  }
  // Completes disk operations of one node, without delivering messages.
  void run_disk(ReplicaId id) {
    while (node(id).complete_one()) {
    }
  }
  // Reads block 5 at replica 1. The disk has answered, and no message was delivered yet.
  std::uint64_t read_unreadable() {
    node(1).unreadable = {5};
    auto id = read(1, 5);
    run_disk(1);
    return id;
  }
  int byte(std::uint64_t block) const { return std::to_integer<int>(out[block * block_size]); }
  bool all(std::uint32_t blocks, int value) const {
    return std::all_of(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(blocks * block_size),
                       [&](std::byte b) { return b == std::byte(value); });
  }
  std::size_t events(ReplicaId id, NoticeKind kind) {
    return static_cast<std::size_t>(
        std::count(node(id).notice_kinds.begin(), node(id).notice_kinds.end(), kind));
  }
  // Messages sent so far never arrive.
  void lose_messages(ReplicaId id) { delivered[id - 1] = node(id).sent.size(); }
};

TEST_F(RepairTest, ABlockComesFromTheOtherReplicaAndIsWrittenAgain) {
  make_and_settle(2);
  node(1).unreadable = {5};
  // A disk may return such content later.
  std::fill_n(node(1).data.begin() + 5 * block_size, block_size, std::byte{0x66});
  auto id = read(1, first, 4);
  exchange();
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(4, 3));
  exchange();
  EXPECT_TRUE(node(1).unreadable.empty()) << "written home";
  EXPECT_EQ(node(1).data, node(2).data);
  EXPECT_EQ(status(node(1)).repaired_blocks, 1u);
  EXPECT_EQ(status(node(1)).unreadable_blocks, 0u);
  EXPECT_EQ(events(1, NoticeKind::repaired), 1u);
  EXPECT_FALSE(status(node(1)).failed);
  node(1).settle();
  EXPECT_TRUE(node(1).core->settled());
}

TEST_F(RepairTest, OnlyWhatCannotBeReadIsAskedFor) {
  make_and_settle(2);
  node(1).unreadable = {6, 9, 10, 31};
  auto id = read(1, 0, 40);
  exchange();
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(40, 3));
  std::set<std::uint64_t> asked;
  for (const FetchBlock& q : said<FetchBlock>(1)) EXPECT_TRUE(asked.insert(q.lba.v).second) << "asked twice";
  EXPECT_EQ(asked, (std::set<std::uint64_t>{6, 9, 10, 31}));
  EXPECT_EQ(status(node(1)).repaired_blocks, 4u);
  EXPECT_EQ(events(1, NoticeKind::repaired), 1u) << "counted together";
  node(1).settle();
  EXPECT_LE(events(1, NoticeKind::repaired), 2u);
}

TEST_F(RepairTest, ZerosAreRepairedToo) {
  make_and_settle(2);
  node(1).submit(ClientOp::trim, 4 * block_size, 2 * block_size);
  node(1).submit(ClientOp::flush);
  exchange();
  checkpoint(1);
  node(1).unreadable = {5};  // the peer still has it in memory, as zeros
  auto id = read(1, 5);
  exchange();
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(1, 0));
  EXPECT_TRUE(node(1).unreadable.empty());
  ASSERT_FALSE(said<FetchedBlock>(2).empty());
  EXPECT_EQ(said<FetchedBlock>(2).back().kind, FetchedBlock::Kind::zeros);
}

TEST_F(RepairTest, WithNobodyConnectedTheErrorIsThatRequestsAlone) {
  make_and_settle(2);
  disconnect(1, 2);
  node(1).unreadable = {5};
  auto bad = read(1, first, 4);
  run_disk(1);
  EXPECT_EQ(node(1).done.at(bad), EIO);
  EXPECT_EQ(status(node(1)).unreadable_blocks, 1u);
  EXPECT_EQ(events(1, NoticeKind::unreadable), 1u);
  auto good = read(1, 6, 2);
  run_disk(1);
  EXPECT_EQ(node(1).done.at(good), 0);
  EXPECT_FALSE(status(node(1)).failed);
  EXPECT_EQ(node(1).reads.used(), 0u) << "the scratch memory is free again";
}

TEST_F(RepairTest, AReadThatFailsOnceNeedsNobody) {
  make_and_settle(2);
  int failures = 1;
  node(1).fault = [&](Disk kind) { return kind == Disk::home_read && failures-- > 0 ? EIO : 0; };
  auto id = read(1, first, 4);
  run_disk(1);
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(4, 3));
  EXPECT_TRUE(said<FetchBlock>(1).empty());
  EXPECT_EQ(status(node(1)).reread_blocks, 4u);
}

// If a disk fails every read of more than one block, the request must not be repeated without end.
TEST_F(RepairTest, ARequestIsNotTriedAgainForEver) {
  make_and_settle(2);
  auto id = read(1, first, 4);
  int tries = 0;
  while (!node(1).is_done(id) && tries < 100) {
    ++tries;
    node(1).fault = [](Disk) { return EIO; };
    ASSERT_EQ(node(1).pending(Disk::home_read), 1u) << "an error for all four blocks";
    node(1).complete_one();
    node(1).fault = nullptr;
    for (int block = 0; block < 4 && !node(1).is_done(id); ++block) ASSERT_TRUE(node(1).complete_one());
  }
  EXPECT_EQ(tries, 5);
  EXPECT_EQ(node(1).done.at(id), EIO);
  EXPECT_EQ(status(node(1)).unreadable_blocks, 1u) << "told";
}

TEST_F(RepairTest, APeerThatGoesAwayWakesWhoWaitsForIt) {
  make_and_settle(2);
  auto id = read_unreadable();
  ASSERT_EQ(said<FetchBlock>(1).size(), 1u);
  EXPECT_FALSE(node(1).is_done(id));
  EXPECT_EQ(status(node(1)).waiting_requests, 1u);
  disconnect(1, 2);
  EXPECT_EQ(node(1).done.at(id), EIO) << "at once";
}

TEST_F(RepairTest, APeerThatSaysNothingIsWaitedForOnlySoLong) {
  make_and_settle(2);
  auto id = read_unreadable();
  lose_messages(1);
  ASSERT_TRUE(node(1).core->next_tick().has_value()) << "the timer has to be requested";
  node(1).pass_time(Config{}.fetch_timeout - Duration(1));
  EXPECT_FALSE(node(1).is_done(id));
  node(1).pass_time(Duration(1));
  EXPECT_EQ(node(1).done.at(id), EIO);
  // The late answer has no waiting read, and is not a protocol error.
  FetchBlock question = said<FetchBlock>(1).back();
  node(1).input(
      2, FetchedBlock{question.epoch, question.seq, FetchedBlock::Kind::data, Lsn{1}, filled(block_size, 9)});
  EXPECT_TRUE(node(1).closed.empty());
  EXPECT_EQ(status(node(1)).repaired_blocks, 0u);
}

// A later reader of the same block gets the full timeout too.
TEST_F(RepairTest, ASecondReaderOfTheBlockIsNotTheFirstOnesTimeout) {
  make_and_settle(2);
  node(1).unreadable = {5};
  auto first_read = read(1, 5);
  run_disk(1);
  lose_messages(1);
  node(1).pass_time(Config{}.fetch_timeout / 2);
  auto second_read = read(1, 5);
  run_disk(1);
  EXPECT_EQ(said<FetchBlock>(1).size(), 1u) << "one request for both";
  node(1).pass_time(Config{}.fetch_timeout / 2);
  EXPECT_EQ(node(1).done.at(first_read), EIO);
  EXPECT_FALSE(node(1).is_done(second_read));
  exchange();
  EXPECT_EQ(node(1).done.at(second_read), 0);
  EXPECT_TRUE(all(1, 3));
}

TEST_F(RepairTest, TheNextReplicaIsAskedWhereOneCannotHelp) {
  make_and_settle(3);
  node(1).unreadable = {5, 6};
  node(2).unreadable = {5};
  auto id = read(1, 5, 2);
  exchange();
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(2, 3));
  EXPECT_EQ(said<FetchedBlock>(3).size(), 1u) << "only for the block that replica 2 cannot supply";
  // Replica 2 has detected its own bad block, and gets it from its primary.
  node(2).pass_time(std::chrono::milliseconds(50));
  exchange();
  EXPECT_TRUE(node(2).unreadable.empty());
  EXPECT_EQ(status(node(2)).repaired_blocks, 1u);
  checkpoint(2);
  EXPECT_EQ(node(2).data, node(3).data);
}

TEST_F(RepairTest, TwoThatAskEachOtherForTheSameBlockComeToAnEnd) {
  make_and_settle(2);
  node(1).unreadable = node(2).unreadable = {5};
  auto id = read(1, 5);
  for (int i = 0; i < 20; ++i) {
    exchange();
    for (ReplicaId n : {1u, 2u}) node(n).pass_time(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(node(1).done.at(id), EIO);
  EXPECT_LE(said<FetchBlock>(1).size() + said<FetchBlock>(2).size(), 4u) << "not without end";
  auto again = write_flush(1, 5);
  exchange();
  checkpoint(1), checkpoint(2);
  EXPECT_EQ(node(1).done.at(again), 0);
  EXPECT_TRUE(node(1).unreadable.empty() && node(2).unreadable.empty()) << "a write repairs it";
}

TEST_F(RepairTest, APartialWriteGetsTheRestOfItsBlock) {
  make_and_settle(2);
  node(1).unreadable = {5};
  std::vector<std::byte> half = filled(block_size / 2, 7);
  auto write = node(1).submit(ClientOp::write, 5 * block_size, static_cast<std::uint32_t>(half.size()),
                              half.data());
  exchange();
  EXPECT_EQ(node(1).done.at(write), 0);
  auto id = read(1, 5);
  exchange();
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_EQ(byte(0), 7);
  EXPECT_EQ(out[block_size - 1], std::byte{3});
  disconnect(1, 2);
  node(1).unreadable = {90};
  write = node(1).submit(ClientOp::write, 90 * block_size, static_cast<std::uint32_t>(half.size()),
                         half.data());
  run_disk(1);
  // The volume is suspended, so the write could wait. But no replica can supply the rest of the block, so the
  // write fails now.
  connect(1, 2);
  node(2).unreadable = {90};
  exchange();
  EXPECT_EQ(node(1).done.at(write), EIO);
  EXPECT_EQ(node(1).reads.used(), 0u);
}

// By then, the data area has newer content than the answer.
TEST_F(RepairTest, ABlockThatIsWrittenMeanwhileKeepsWhatWasWritten) {
  make_and_settle(2);
  auto id = read_unreadable();
  FetchBlock question = said<FetchBlock>(1).at(0);
  lose_messages(1);
  fill(1, 5, 6, 8);
  checkpoint(1);
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(1, 8)) << "the newest content at the second read";
  node(1).input(2, FetchedBlock{question.epoch, question.seq, FetchedBlock::Kind::data, question.after,
                                filled(block_size, 3)});
  exchange();
  checkpoint(1);
  EXPECT_EQ(node(1).data[5 * block_size], std::byte{8});
  EXPECT_EQ(status(node(1)).overwritten_blocks, 1u);
  EXPECT_EQ(status(node(1)).repaired_blocks, 0u);
}

TEST_F(RepairTest, WhoHasCommittedLessAnswersLater) {
  make_and_settle(2);
  VolumeStatus before = status(node(2));
  node(2).input(1, FetchBlock{before.epoch, 1000, Lba{5}, before.commit + 1});
  exchange();
  EXPECT_TRUE(said<FetchedBlock>(2).empty());
  fill(1, 5, 6, 8);
  auto answers = said<FetchedBlock>(2);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_GT(answers[0].as_of, before.commit);
  EXPECT_EQ(answers[0].content, filled(block_size, 8));
}

// The data area may hold a torn block, of a record that is no longer known to be committed.
TEST_F(RepairTest, AReplicaThatHasStartedAnswersWhenItKnowsWhatItHolds) {
  make_and_settle(2);
  fill(1, 5, 6, 8);
  Lsn last = status(node(1)).last;
  disconnect(1, 2);
  node(2).restart();
  lose_messages(1), lose_messages(2);
  ASSERT_LT(status(node(2)).commit, last);
  connect(1, 2);
  for (int i = 0; i < 20; ++i) {  // all messages except the commit
    run_disk(2);
    while (delivered[1] < node(2).sent.size()) node(1).input(2, node(2).sent[delivered[1]++]);
    while (delivered[0] < node(1).sent.size() && !std::holds_alternative<Commit>(node(1).sent[delivered[0]]))
      node(2).input(1, node(1).sent[delivered[0]++]);
  }
  ASSERT_TRUE(delivered[0] < node(1).sent.size() && !said<Begin>(1).empty());
  node(2).input(1, FetchBlock{status(node(1)).epoch, 1000, Lba{5}, status(node(2)).commit});
  run_disk(2);
  EXPECT_TRUE(said<FetchedBlock>(2).empty());
  exchange();
  ASSERT_EQ(said<FetchedBlock>(2).size(), 1u);
  EXPECT_EQ(said<FetchedBlock>(2)[0].content, filled(block_size, 8));
}

// A secondary waits until the content is committed here too, not only at the primary.
TEST_F(RepairTest, ContentCountsOnceItIsCommittedHere) {
  make_and_settle(2);
  node(1).unreadable = node(2).unreadable = {5};
  read(1, 5);
  exchange();
  node(2).pass_time(std::chrono::milliseconds(50));
  run_disk(2);
  auto asked = said<FetchBlock>(2);
  ASSERT_EQ(asked.size(), 1u) << "a secondary that could not answer asks its primary";
  lose_messages(2);
  Lsn commit = status(node(2)).commit;
  node(2).input(1, FetchedBlock{asked[0].epoch, asked[0].seq, FetchedBlock::Kind::data, commit + 1,
                                filled(block_size, 3)});
  checkpoint(2);
  EXPECT_EQ(node(2).unreadable.count(5), 1u) << "not yet";
  fill(1, 100, 101, 4);
  checkpoint(2);
  EXPECT_TRUE(node(2).unreadable.empty());
  EXPECT_EQ(status(node(2)).repaired_blocks, 1u);
}

TEST_F(RepairTest, ManyAreFetchedAFewAtATime) {
  make_and_settle(2);
  for (std::uint64_t b = 0; b < 60; ++b) node(1).unreadable.insert(b);
  auto id = read(1, 0, 60);
  run_disk(1);
  EXPECT_EQ(said<FetchBlock>(1).size(), 32u);
  EXPECT_EQ(node(1).reads.used(), 0u);
  exchange();
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(60, 3));
  EXPECT_EQ(status(node(1)).repaired_blocks, 60u);
}

// Reads hold all scratch memory. The repair waits for one of the reads, and no read waits for the repair.
TEST_F(RepairTest, AFullReadArenaHoldsNothingUpForEver) {
  make_and_settle(2);
  node(1).unreadable = {5};
  auto bad = read(1, first, 4);
  std::vector<std::vector<std::byte>> buffers(9, std::vector<std::byte>(64 * block_size + 1));
  std::vector<std::uint64_t> ids;
  node(1).held = [](Disk kind) { return kind == Disk::home_read; };
  for (auto& b : buffers) {
    std::uint32_t blocks = ids.size() == 7 ? 60 : 64;  // with the first four blocks: all of it
    ids.push_back(node(1).submit(ClientOp::read, 100 * block_size,
                                 blocks * static_cast<std::uint32_t>(block_size), b.data() + 1));
  }
  EXPECT_EQ(node(1).reads.free(), 0u);
  EXPECT_GT(status(node(1)).waiting_requests, 0u);
  node(1).held = nullptr;
  exchange();
  EXPECT_EQ(node(1).done.at(bad), 0);
  for (auto id : ids) EXPECT_EQ(node(1).done.at(id), 0);
}

TEST_F(RepairTest, ADemotionWaitsForItAndALostEpochDoesNot) {
  make_and_settle(2);
  auto id = read_unreadable();
  lose_messages(1);
  node(1).step(Demote{3});
  run_disk(1);
  EXPECT_EQ(status(node(1)).role, Role::primary);
  node(1).pass_time(Config{}.fetch_timeout);
  EXPECT_EQ(node(1).done.at(id), EIO);
  EXPECT_EQ(status(node(1)).role, Role::secondary);

  make(2, Arbiter::external);
  connect_all();
  exchange();
  node(1).step(Promote{1});
  exchange();
  while (status(node(1)).role != Role::primary) answer(1, Outcome::granted);
  fill(1, 0, 20, 3);
  checkpoint(1);
  node(1).unreadable = {5};
  id = read(1, 5);
  run_disk(1);
  EXPECT_FALSE(node(1).is_done(id));
  EpochValue other{{99, Uuid::parse("aabbccdd-0011-4223-8445-66778899aabb").value()}, 2, set_of(2), {}};
  node(1).input(2, MatchRequest{other.epoch});
  EXPECT_EQ(node(1).done.at(id), EIO) << "another primary has taken over";
}

TEST_F(RepairTest, AnotherDiskErrorEndsTheWaiting) {
  make_and_settle(2);
  auto id = read_unreadable();
  EXPECT_FALSE(node(1).is_done(id));
  node(1).step(Detach{});
  EXPECT_EQ(node(1).done.at(id), EIO);
}

TEST_F(RepairTest, ARewriteThatFailsFailsTheDeviceLikeAnyHomeWrite) {
  make_and_settle(2);
  node(1).unreadable = {5};
  node(1).fault = [](Disk kind) { return kind == Disk::home_write ? EIO : 0; };
  auto id = read(1, 5);
  exchange();
  EXPECT_EQ(node(1).done.at(id), 0) << "the content is here nevertheless";
  EXPECT_TRUE(status(node(1)).failed);
}

TEST_F(RepairTest, TheSourceOfAResyncGetsItsBlocksFromAThirdReplica) {
  make_and_settle(3);
  disconnect(1, 3), disconnect(2, 3);
  lose_disk(3);
  node(1).unreadable = {5, 70, 71};
  connect(1, 3), connect(2, 3);
  exchange();
  for (ReplicaId id : {1u, 2u, 3u}) checkpoint(id);
  EXPECT_FALSE(status(node(3)).inconsistent);
  EXPECT_EQ(node(3).data, node(2).data);
  EXPECT_TRUE(node(1).unreadable.empty());
  EXPECT_EQ(status(node(1)).repaired_blocks, 3u);
}

TEST_F(RepairTest, AResyncOfBlocksThatNobodyHasIsRefusedInWords) {
  make_and_settle(2);
  disconnect(1, 2);
  lose_disk(2);
  node(1).unreadable = {70};
  connect(1, 2);
  exchange();
  EXPECT_TRUE(status(node(2)).inconsistent);
  std::string why = status(node(1)).peers.at(0).why;
  EXPECT_NE(why.find("cannot be read among blocks 64 to 127"), std::string::npos) << why;
  EXPECT_EQ(node(1).reads.used(), 0u);
}

TEST_F(RepairTest, AnUnreadableBlockBetweenTheWantedOnesDoesNotMatter) {
  make_and_settle(2);
  disconnect(1, 2);
  node(1).step(Promote{5, true});
  exchange();
  for (int turn = 0; turn < 2200; ++turn) {  // until the journal no longer reaches back that far
    fill(1, 10, 11, turn % 200);
    fill(1, 12, 13, turn % 200);
  }
  checkpoint(1);
  node(1).unreadable = {11};
  connect(1, 2);
  exchange();
  checkpoint(1), checkpoint(2);
  EXPECT_FALSE(status(node(2)).inconsistent);
  EXPECT_EQ(node(2).data, node(1).data);
}

TEST_F(RepairTest, WhatTheTargetOfAResyncCannotReadIsSentAndTheRestIsNot) {
  make_and_settle(2);
  begin_needless_resync();
  node(2).unreadable = {70, 75};
  exchange();
  checkpoint(2);
  EXPECT_FALSE(status(node(2)).inconsistent);
  EXPECT_TRUE(node(2).unreadable.empty());
  EXPECT_EQ(node(2).data, node(1).data);
  std::uint64_t blocks = 0;
  for (const SyncData& m : said<SyncData>(1))
    for (const Extent& e : m.extents) blocks += e.blocks;
  EXPECT_EQ(blocks, 2u);
  EXPECT_EQ(status(node(2)).repaired_blocks, 2u);
}

TEST_F(RepairTest, NonsenseIsRefused) {
  make_and_settle(2);
  Epoch epoch = status(node(1)).epoch;
  node(1).input(2, FetchedBlock{epoch, 77, FetchedBlock::Kind::zeros, Lsn{1}, {}});
  ASSERT_EQ(node(1).closed.size(), 1u);
  EXPECT_NE(node(1).closed[0].reason.find("unrequested block"), std::string::npos);
  connect(1, 2);
  exchange();
  node(1).unreadable = {5};
  read(1, 5);
  run_disk(1);
  FetchBlock question = said<FetchBlock>(1).back();
  lose_messages(1);
  ++question.epoch.counter;
  node(1).input(2, FetchedBlock{question.epoch, question.seq, FetchedBlock::Kind::zeros, Lsn{1}, {}});
  EXPECT_EQ(node(1).closed.size(), 2u) << "of another epoch";
  node(2).input(1, FetchBlock{epoch, 1, Lba{1024}, Lsn{1}});
  ASSERT_FALSE(node(2).closed.empty());
  EXPECT_NE(node(2).closed.back().reason.find("beyond the volume"), std::string::npos);
  EXPECT_TRUE(said<FetchedBlock>(2).empty());
}

TEST_F(RepairTest, QuestionsOfALostConnectionAreDropped) {
  make_and_settle(2);
  VolumeStatus s = status(node(2));
  for (std::uint64_t seq = 1; seq <= 1000; ++seq)
    node(2).input(1, FetchBlock{s.epoch, seq, Lba{5}, s.commit + 1});
  EXPECT_FALSE(node(2).core->settled());
  disconnect(1, 2);
  EXPECT_TRUE(node(2).core->settled());
  EXPECT_TRUE(said<FetchedBlock>(2).empty());
}

// As if both had become secondaries of a third replica, on the same connection.
TEST_F(RepairTest, QuestionsThatCannotBeAnsweredAreDroppedWithTheirAsker) {
  make_and_settle(2);
  VolumeStatus s = status(node(2));
  node(2).input(1, FetchBlock{s.epoch, 1, Lba{5}, s.commit + 1});
  NodeState demoted = said<NodeState>(1).back();
  demoted.primary = false;
  node(2).input(1, demoted);
  EXPECT_FALSE(node(2).core->settled());
  ASSERT_TRUE(node(2).core->next_tick().has_value());
  node(2).pass_time(Config{}.fetch_timeout);
  EXPECT_TRUE(node(2).core->settled());
}

}  // namespace
}  // namespace twinloft::repl::core
