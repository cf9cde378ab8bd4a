// The target of a resync alone.
#include "resync_target.h"

#include "parts.h"

namespace twinloft::repl::core {
namespace {

struct ResyncTargetTest : PartsTest {
  ResyncTarget target{v, checkpointer};

  ResyncTargetTest() {
    v.disk.begin_sync(epoch(3), std::nullopt);
    target.begin({1, epoch(3)});
  }
  SyncData content(std::uint64_t seq, std::uint64_t lba, int value) {
    return {epoch(3), seq, {{Lba{lba}, 1, ExtentKind::data}}, filled(block_size, value)};
  }
  std::string take(SyncData m) { return target.take(m); }
  SyncCheck check_of(std::uint64_t seq, std::initializer_list<int> values) {
    SyncCheck m{epoch(3), seq, 0, 0, {}};
    for (int value : values) {
      m.mask |= std::uint64_t{1} << m.digests.size();
      m.digests.push_back(hash128(filled(block_size, value)));
    }
    return m;
  }
  void advance() {
    settle([&] { target.advance(); });
    target.check_invariants();
  }
  void end_reads(int error = 0) {
    perform();
    for (HomeRead& r : std::exchange(taken.home_reads, {})) {
      std::uint64_t at = r.at.bytes();
      for (const IoPiece& p : r.pieces) std::memcpy(p.data, data.data() + at, p.bytes), at += p.bytes;
      target.on_check_read(number_of(r.token), error);
    }
  }
};

TEST_F(ResyncTargetTest, ContentIsAcknowledgedOnceItIsHome) {
  ASSERT_EQ(take(content(1, 5, 7)), "");
  target.flush_messages();
  EXPECT_TRUE(sent<SyncAck>().empty());
  advance();
  EXPECT_EQ(data[5 * block_size], std::byte{7});
  target.flush_messages();
  auto acks = sent<SyncAck>();
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].seq, 1u);
  EXPECT_FALSE(acks[0].declined);
  target.flush_messages();
  EXPECT_TRUE(sent<SyncAck>().empty()) << "once";
}

// A later portion of the same round wrote it home, so the next round has nothing to write.
TEST_F(ResyncTargetTest, ContentThatComesBetweenTwoPortionsOfZerosIsAcknowledged) {
  v.distrusts_disk = true;  // so that zeros are written even over zeros
  ASSERT_EQ(take({epoch(3), 1, {{Lba{0}, 512, ExtentKind::zeros}}, {}}), "");
  target.advance();
  checkpointer.advance();
  ASSERT_EQ(checkpointer.rounds_begun(), 1u);
  ASSERT_EQ(take(content(2, 900, 7)), "");
  advance();
  EXPECT_EQ(data[900 * block_size], std::byte{7});
  target.flush_messages();
  auto acks = sent<SyncAck>();
  ASSERT_FALSE(acks.empty());
  EXPECT_EQ(acks.back().seq, 2u);
}

TEST_F(ResyncTargetTest, ContentOfAnotherTimeIsRefused) {
  SyncData other = content(1, 5, 7);
  other.epoch = epoch(4);
  EXPECT_EQ(take(other), "unrequested resync data");
  ASSERT_EQ(take(content(2, 5, 7)), "");
  EXPECT_EQ(take(content(2, 6, 7)), "resync data out of order, or beyond the volume's end");
  EXPECT_EQ(take(content(3, volume_blocks, 7)), "resync data out of order, or beyond the volume's end");
  target.drop();
  EXPECT_EQ(take(content(4, 5, 7)), "unrequested resync data");
  EXPECT_EQ(target.take(SyncEnd{epoch(3), Lsn{0}}), "end of a resync that had not begun");
}

TEST_F(ResyncTargetTest, ContentWithoutRoomIsDeclined) {
  std::vector<Slot> all;
  while (arena.free() > record_blocks_max) all.push_back(arena.take());
  ASSERT_EQ(take(content(1, 5, 7)), "");
  auto acks = sent<SyncAck>();
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_TRUE(acks[0].declined);
  EXPECT_TRUE(v.committed.empty());
  for (Slot s : all) arena.unref(s);
}

TEST_F(ResyncTargetTest, AChecksAnswerNamesWhatDiffers) {
  std::fill_n(data.begin() + block_size, block_size, std::byte{4});
  v.digests.put(Lba{1}, data.data() + block_size);
  SyncCheck m = check_of(1, {0, 4, 9});
  ASSERT_EQ(target.take(m), "");
  target.advance();
  end_reads();
  auto answers = sent<SyncDiffer>();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].mask, 0b100u);
  EXPECT_EQ(answers[0].seq, 1u);
  EXPECT_TRUE(target.settled());
}

TEST_F(ResyncTargetTest, WhatCannotBeReadDiffersBlockByBlock) {
  SyncCheck m = check_of(1, {0, 0});
  ASSERT_EQ(target.take(m), "");
  target.advance();
  end_reads(EIO);
  perform();
  ASSERT_EQ(taken.home_reads.size(), 2u) << "each block separately";
  auto each = std::exchange(taken.home_reads, {});
  target.on_check_read(number_of(each[0].token), EIO);
  std::memset(each[1].pieces[0].data, 0, block_size);
  target.on_check_read(number_of(each[1].token), 0);
  auto answers = sent<SyncDiffer>();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].mask, 0b01u);
}

TEST_F(ResyncTargetTest, AReadOutlivesItsSource) {
  std::size_t before = reads.free();
  SyncCheck m = check_of(1, {0});
  ASSERT_EQ(target.take(m), "");
  target.advance();
  target.drop();
  EXPECT_FALSE(target.settled());
  target.begin({1, epoch(3)});
  target.check_invariants();
  end_reads();
  EXPECT_TRUE(sent<SyncDiffer>().empty()) << "from the previous connection";
  EXPECT_TRUE(target.settled());
  EXPECT_EQ(reads.free(), before);
}

TEST_F(ResyncTargetTest, TooManyChecksAreRefused) {
  for (std::uint64_t i = 1; i <= 64; ++i) {
    SyncCheck m = check_of(i, {0});
    ASSERT_EQ(target.take(m), "");
  }
  SyncCheck more = check_of(65, {0});
  EXPECT_EQ(target.take(more), "resync checks beyond the volume's end, or too many of them");
}

TEST_F(ResyncTargetTest, TheEndWaitsForAllContentAndItsSync) {
  ASSERT_EQ(take(content(1, 5, 7)), "");
  ASSERT_EQ(target.take(SyncEnd{epoch(3), Lsn{0}}), "");
  target.advance();
  EXPECT_FALSE(target.ends()) << "the content is not home";
  advance();
  ASSERT_TRUE(target.ends());
  EXPECT_TRUE(v.disk.finishing());
  EXPECT_TRUE(v.disk.inconsistent()) << "until the superblock is durable";
  ASSERT_TRUE(take_durable(Volume::for_consistent));
  target.on_consistent_durable();
  EXPECT_FALSE(v.disk.inconsistent());
  EXPECT_TRUE(target.settled());
  target.check_invariants();
}

TEST_F(ResyncTargetTest, TheEndWaitsForTheCommitPoint) {
  append(1, 1);
  perform();
  ASSERT_EQ(target.take(SyncEnd{epoch(3), Lsn{1}}), "");
  advance();
  EXPECT_FALSE(target.ends());
  v.commit_upto(v.log.end(), [](const LogRecord&) {});
  advance();
  EXPECT_TRUE(target.ends());
}

TEST_F(ResyncTargetTest, TheEndComesWithoutTheSource) {
  ASSERT_EQ(target.take(SyncEnd{epoch(3), Lsn{0}}), "");
  advance();
  ASSERT_TRUE(target.ends());
  target.drop();
  EXPECT_TRUE(target.ends()) << "the superblock is being written";
  EXPECT_EQ(take(content(1, 5, 7)), "unrequested resync data");
  target.check_invariants();
  target.on_consistent_durable();
  EXPECT_FALSE(v.disk.inconsistent());
}

TEST_F(ResyncTargetTest, AnEndOfAnotherKindIsNotItsOwn) {
  target.on_consistent_durable();
  EXPECT_TRUE(v.disk.inconsistent()) << "it is still being filled";
  EXPECT_TRUE(target.fills());
}

TEST_F(ResyncTargetTest, ProgressIsWhatTheSourceSays) {
  target.take(SyncProgress{epoch(3), 10, 40});
  EXPECT_EQ(target.progress().done, 10u);
  EXPECT_EQ(target.progress().total, 40u);
  target.take(SyncProgress{epoch(3), 50, 40});
  EXPECT_EQ(target.progress().done, 40u);
  target.drop();
  EXPECT_EQ(target.progress().total, 0u);
}

TEST_F(ResyncTargetTest, OnlyOneSourceFillsIt) {
  EXPECT_DEATH(target.begin({1, epoch(4)}), "");
}

}  // namespace
}  // namespace twinloft::repl::core
