#include "twinloft/spool-repl/core/log.h"

#include <gtest/gtest.h>

namespace twinloft::repl::core {
namespace {

constexpr std::uint64_t ring_blocks = 16;

LogMark mark(std::uint64_t lsn) {
  return {Lsn{lsn}, hash128(as_bytes(std::to_string(lsn)))};
}

struct LogTest : testing::Test {
  Log log{{ring_blocks * block_size, JournalPos{0}}, mark(0), Epoch{1, {}}};
  std::uint64_t lsn = 0;

  // Adds a record of `blocks` with two LSNs. False: the ring has no room.
  bool add(std::uint32_t blocks, bool durable = true) {
    auto pos = log.place(blocks);
    if (!pos) return false;
    LogRecord r;
    r.first = Lsn{lsn + 1};
    r.mark = mark(lsn + 2);
    r.epoch = {1 + lsn / 10, {}};
    r.pos = *pos;
    r.total_blocks = blocks;
    r.durable = durable;
    log.append(std::move(r));
    lsn += 2;
    return true;
  }
  // The number of the n-th record, from 1 on.
  static constexpr RecordNo nth(RecordNo n) { return first_record_no - 1 + n; }
  void commit_all() { log.set_committed_end(log.durable_end()); }
};

TEST_F(LogTest, FillsTheRingExactly) {
  EXPECT_EQ(log.used_bytes(), 0u);
  EXPECT_TRUE(add(8));
  EXPECT_TRUE(add(8));
  EXPECT_EQ(log.used_bytes(), log.ring_bytes());
  EXPECT_FALSE(add(1));
  commit_all();
  log.drop_before(nth(2));
  EXPECT_EQ(log.tail_mark(), mark(2));
  EXPECT_EQ(log.tail_pos().v, 8u * block_size);
  EXPECT_FALSE(add(9));
  EXPECT_TRUE(add(8));
  EXPECT_EQ(log.at(nth(3)).pos.v, 16u * block_size) << "positions never wrap";
}

TEST_F(LogTest, ARecordNeverWraps) {
  EXPECT_TRUE(add(10));
  commit_all();
  log.drop_before(nth(2));
  ASSERT_TRUE(add(7)) << "6 blocks are left before the end: it starts at the beginning";
  EXPECT_EQ(log.at(nth(2)).pos.v, 16u * block_size);
  EXPECT_EQ(log.used_bytes(), 13u * block_size) << "skipped blocks count as used";
  EXPECT_FALSE(add(4));
  EXPECT_TRUE(add(3));
}

TEST_F(LogTest, DurableIsAnUnbrokenRow) {
  for (int i = 0; i < 4; ++i) add(1, false);
  log.set_durable(nth(2));
  log.set_durable(nth(4));
  EXPECT_EQ(log.durable_end(), nth(1));
  log.set_durable(nth(1));
  EXPECT_EQ(log.durable_end(), nth(3));
  log.set_durable(nth(3));
  EXPECT_EQ(log.durable_end(), nth(5));
}

TEST_F(LogTest, FindsExactlyWhatItHolds) {
  for (int i = 0; i < 5; ++i) add(1);
  EXPECT_EQ(log.find(mark(0)), nth(1));
  EXPECT_EQ(log.find(mark(6)), nth(4));
  EXPECT_EQ(log.find(mark(10)), nth(6));
  EXPECT_EQ(log.find(mark(12)), std::nullopt);
  EXPECT_EQ(log.find(mark(5)), std::nullopt) << "within a record";
  EXPECT_EQ(log.find({Lsn{6}, mark(4).hash}), std::nullopt) << "another history";
  EXPECT_EQ(log.end_upto(Lsn{0}), nth(1));
  EXPECT_EQ(log.end_upto(Lsn{5}), nth(3));
  EXPECT_EQ(log.end_upto(Lsn{6}), nth(4));
  EXPECT_EQ(log.end_upto(Lsn{1000}), nth(6));
  commit_all();
  log.drop_before(nth(4));
  EXPECT_EQ(log.find(mark(4)), std::nullopt) << "older than the tail";
  EXPECT_EQ(log.find(mark(6)), nth(4)) << "the tail's own mark";
  EXPECT_EQ(log.mark_before(log.first()), mark(6));
  EXPECT_EQ(log.end_upto(Lsn{1}), nth(4));
}

TEST_F(LogTest, CutTakesBackTheHead) {
  for (int i = 0; i < 5; ++i) add(2);
  log.set_committed_end(nth(3));
  log.cut(nth(4));
  EXPECT_EQ(log.end(), nth(4));
  EXPECT_EQ(log.durable_end(), nth(4));
  EXPECT_EQ(log.last_mark(), mark(6));
  EXPECT_EQ(log.used_bytes(), 6u * block_size);
  lsn = 6;
  EXPECT_TRUE(add(2));
  EXPECT_EQ(log.at(nth(4)).pos.v, 6u * block_size) << "the place is reused";
}

TEST_F(LogTest, CutBeforeARecordThatWrappedGivesTheSkippedPlaceBack) {
  add(10);
  commit_all();
  log.drop_before(nth(2));
  add(7);
  log.cut(nth(2));
  EXPECT_EQ(log.used_bytes(), 0u);
  lsn = 2;
  EXPECT_TRUE(add(6));
  EXPECT_EQ(log.at(nth(2)).pos.v, 10u * block_size);
}

TEST_F(LogTest, EpochsFollowTheRecords) {
  for (int i = 0; i < 10; ++i) add(1);
  EXPECT_EQ(log.epoch_before(nth(1)).counter, 1u);
  EXPECT_EQ(log.epoch_before(nth(6)).counter, 1u);
  EXPECT_EQ(log.epoch_before(nth(7)).counter, 2u);
  commit_all();
  log.drop_before(nth(8));
  EXPECT_EQ(log.epoch_before(nth(8)).counter, 2u);
}

using LogDeathTest = LogTest;
TEST_F(LogDeathTest, MisuseStopsTheProcess) {
  add(1);
  add(1, false);
  EXPECT_DEATH(log.set_committed_end(nth(3)), "durable_end_") << "commits only durable records";
  EXPECT_DEATH(log.drop_before(nth(2)), "committed_end_") << "drops only committed records";
  log.set_committed_end(nth(2));
  EXPECT_DEATH(log.cut(nth(1)), "committed_end_") << "cuts no committed record";
  LogRecord gap;
  gap.first = Lsn{100};
  gap.pos = {5 * block_size};
  EXPECT_DEATH(log.append(gap), "first");
}

// Compares a ring of records with a map of its blocks. No record overlaps a record that is still needed.
TEST(LogProperty, NeverOverlapsWhatIsNotDropped) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SeededRandom random(seed);
    Log log({ring_blocks * block_size, JournalPos{0}}, mark(0), {});
    std::vector<RecordNo> owner(ring_blocks, 0);
    std::uint64_t lsn = 0, refused = 0;
    for (int i = 0; i < 400; ++i) {
      auto blocks = static_cast<std::uint32_t>(1 + random.below(7));
      auto pos = log.place(blocks);
      if (!pos) {
        refused++;
        ASSERT_GT(log.end(), log.first()) << "an empty ring has room for every record up to half its size";
        log.set_committed_end(log.durable_end());
        RecordNo upto = log.first() + 1 + random.below(log.committed_end() - log.first());
        log.drop_before(upto);
        for (RecordNo& o : owner) o = o < upto ? 0 : o;
        continue;
      }
      std::uint64_t at = pos->v / block_size % ring_blocks;
      ASSERT_LE(at + blocks, ring_blocks) << "never wraps";
      LogRecord r;
      r.first = Lsn{lsn + 1};
      r.mark = mark(++lsn);
      r.pos = *pos;
      r.total_blocks = blocks;
      r.durable = true;
      RecordNo no = log.append(std::move(r));
      for (std::uint64_t b = at; b < at + blocks; ++b) {
        ASSERT_EQ(owner[b], 0u) << "seed " << seed << ": record " << no << " over record " << owner[b];
        owner[b] = no;
      }
    }
    EXPECT_GT(refused, 10u);
  }
}

}  // namespace
}  // namespace twinloft::repl::core
