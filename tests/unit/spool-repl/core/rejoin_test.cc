// The rejoin alone: a tail is cut, a log is discarded, and each of them during the other.
#include "rejoin.h"

#include "parts.h"

namespace twinloft::repl::core {
namespace {

struct RejoinTest : PartsTest {
  ResyncTarget target{v, checkpointer};
  Rejoin rejoin{v, checkpointer, target};
  std::vector<LogMark> marks;  // the marks of records 1 to n

  void records(int n) {
    marks = {v.log.last_mark()};
    for (int i = 1; i <= n; ++i) append(static_cast<std::uint64_t>(i), i), marks.push_back(v.log.last_mark());
    perform();
    ASSERT_EQ(v.log.durable_end(), v.log.end());
  }
  LogMark mark(std::size_t lsn) const { return marks[lsn]; }
  Rejoin::Cut cut_to(std::size_t lsn) { return {1, mark(lsn), {epoch(2), Lsn{lsn + 1}, 1, 3, 0}}; }
  Rejoin::Reset reset(bool whole, bool gives_up = false) {
    LogMark from{Lsn{50}, v.log.last_mark().hash};
    return {1, SyncBegin{epoch(2), from, epoch(2), whole, {}, {}, {}}, gives_up};
  }
  // The first and the last LSN of each archive that was requested so far.
  using Ranges = std::vector<std::pair<Lsn, Lsn>>;
  Ranges archives() {
    perform();
    Ranges ranges;
    for (const ArchiveTail& a : std::exchange(taken.archives, {})) ranges.emplace_back(a.first, a.last);
    return ranges;
  }
  // Completes the erasing of the cut records.
  std::optional<Rejoin::Cut> erased() {
    std::optional<Rejoin::Cut> done;
    perform();
    std::size_t n = std::exchange(taken.journal_writes, {}).size();
    EXPECT_GT(n, 0u);
    for (; n > 0; --n) done = rejoin.on_erased(0);
    return done;
  }
  void check() {
    v.check_invariants();
    rejoin.check_invariants();
  }
};

TEST_F(RejoinTest, ACutIsArchivedStoredAndErased) {
  records(4);
  rejoin.cut(cut_to(2));
  EXPECT_FALSE(rejoin.steady());
  EXPECT_EQ(archives(), (Ranges{{Lsn{3}, Lsn{4}}}));
  EXPECT_EQ(v.log.last_mark(), mark(4)) << "no record is cut before it is archived";
  check();
  superblocks_wait = true;
  EXPECT_FALSE(rejoin.on_archived(0));
  EXPECT_EQ(v.log.last_mark(), mark(2));
  EXPECT_EQ(v.sb.cut_for.epoch, epoch(2));
  perform();
  EXPECT_TRUE(taken.journal_writes.empty()) << "no record is erased before the superblock is durable";
  check();
  superblocks_wait = false;
  perform();
  ASSERT_TRUE(take_durable(Volume::for_cut));
  EXPECT_FALSE(rejoin.on_cut_durable());
  check();
  auto done = erased();
  ASSERT_TRUE(done);
  EXPECT_EQ(done->to, mark(2));
  EXPECT_TRUE(rejoin.steady());
  check();
}

TEST_F(RejoinTest, ACutWaitsForJournalWritesUnderWay) {
  records(1);
  append(7, 7);
  rejoin.cut(cut_to(1));
  EXPECT_TRUE(v.out.archives.empty());
  perform();
  rejoin.advance();
  EXPECT_EQ(archives().size(), 1u);
}

TEST_F(RejoinTest, AnArchiveThatFailsLeavesTheTail) {
  records(3);
  rejoin.cut(cut_to(1));
  archives();
  auto failed = rejoin.on_archived(EIO);
  ASSERT_TRUE(failed);
  EXPECT_FALSE(failed->of_reset);
  EXPECT_EQ(failed->beyond, Lsn{1});
  EXPECT_EQ(v.log.last_mark(), mark(3));
  EXPECT_TRUE(rejoin.steady());
  check();
}

// The connection was lost meanwhile, and the next primary has fewer records in common.
TEST_F(RejoinTest, AnEarlierPointIsArchivedAgain) {
  records(4);
  rejoin.cut(cut_to(3));
  archives();
  rejoin.drop();
  rejoin.cut(cut_to(1));
  EXPECT_TRUE(archives().empty()) << "one archive at a time";
  EXPECT_FALSE(rejoin.on_archived(0));
  EXPECT_EQ(archives(), (Ranges{{Lsn{2}, Lsn{4}}}));
  EXPECT_FALSE(rejoin.on_archived(0));
  EXPECT_EQ(v.log.last_mark(), mark(1));
  check();
}

TEST_F(RejoinTest, AResetArchivesWhatIsUncommittedAndEmptiesTheLog) {
  records(3);
  v.commit_upto(v.log.first() + 1, [](const LogRecord&) {});
  rejoin.reset(reset(true));
  EXPECT_TRUE(rejoin.resets());
  EXPECT_EQ(archives(), (Ranges{{Lsn{2}, Lsn{3}}}));
  EXPECT_FALSE(v.disk.inconsistent());
  superblocks_wait = true;
  EXPECT_FALSE(rejoin.on_archived(0));
  EXPECT_TRUE(rejoin.stores_reset());
  EXPECT_TRUE(v.disk.inconsistent());
  EXPECT_FALSE(v.disk.base()) << "the superblock of a full resync";
  EXPECT_EQ(v.log.last_mark().lsn, Lsn{50});
  check();
  rejoin.drop();
  EXPECT_TRUE(rejoin.stores_reset()) << "the command comes too late";
  superblocks_wait = false;
  perform();
  ASSERT_TRUE(take_durable(Volume::for_reset));
  auto done = rejoin.on_reset_durable();
  ASSERT_TRUE(done);
  EXPECT_EQ(done->source, 1u);
  EXPECT_TRUE(rejoin.steady());
  check();
}

TEST_F(RejoinTest, ABitmapResyncBringsTheDataAreaToItsBaseFirst) {
  records(3);
  v.commit_upto(v.log.first() + 2, [](const LogRecord&) {});
  rejoin.reset(reset(false));
  EXPECT_FALSE(rejoin.stores_reset());
  settle([&] { rejoin.advance(); });
  EXPECT_EQ(archives(), (Ranges{{Lsn{3}, Lsn{3}}}));
  EXPECT_EQ(data[1 * block_size], std::byte{1});
  EXPECT_EQ(data[2 * block_size], std::byte{2});
  EXPECT_FALSE(rejoin.on_archived(0));
  ASSERT_TRUE(v.disk.base());
  EXPECT_EQ(v.disk.base()->lsn, Lsn{2});
  check();
}

TEST_F(RejoinTest, WhatIsGivenUpIsArchivedFromTheTailOn) {
  records(3);
  v.commit_upto(v.log.end(), [](const LogRecord&) {});
  rejoin.reset(reset(true, true));
  EXPECT_TRUE(rejoin.gives_up());
  EXPECT_EQ(archives(), (Ranges{{Lsn{1}, Lsn{3}}}));
}

TEST_F(RejoinTest, AResetThatIsDroppedInItsArchiveChangesNothing) {
  records(2);
  rejoin.reset(reset(true));
  archives();
  rejoin.drop();
  EXPECT_FALSE(rejoin.resets());
  EXPECT_TRUE(rejoin.archives());
  check();
  EXPECT_FALSE(rejoin.on_archived(EIO)) << "it is not requested any more";
  EXPECT_TRUE(rejoin.steady());
  EXPECT_EQ(v.log.last_mark(), mark(2));
  EXPECT_FALSE(v.disk.inconsistent());
  check();
}

TEST_F(RejoinTest, ACutWaitsForTheArchiveOfADroppedReset) {
  records(3);
  rejoin.reset(reset(true));
  archives();
  rejoin.drop();
  rejoin.cut(cut_to(2));
  EXPECT_TRUE(archives().empty());
  EXPECT_FALSE(rejoin.on_archived(0));
  EXPECT_EQ(archives(), (Ranges{{Lsn{3}, Lsn{3}}}));
}

TEST_F(RejoinTest, AResetWaitsForACutUnderWay) {
  records(3);
  rejoin.cut(cut_to(2));
  archives();
  rejoin.drop();
  rejoin.reset(reset(true, true));
  EXPECT_TRUE(rejoin.gives_up());
  EXPECT_FALSE(rejoin.on_archived(0));
  perform();
  ASSERT_TRUE(take_durable(Volume::for_cut));
  rejoin.on_cut_durable();
  EXPECT_TRUE(erased());
  EXPECT_FALSE(rejoin.steady());
  EXPECT_TRUE(rejoin.resets());
  rejoin.advance();
  EXPECT_EQ(archives(), (Ranges{{Lsn{1}, Lsn{2}}}));
  check();
}

TEST_F(RejoinTest, AFailedArchiveOfAResetIsTold) {
  records(2);
  rejoin.reset(reset(true));
  archives();
  auto failed = rejoin.on_archived(ENOSPC);
  ASSERT_TRUE(failed);
  EXPECT_TRUE(failed->of_reset);
  EXPECT_EQ(failed->error, ENOSPC);
  EXPECT_TRUE(rejoin.steady());
  EXPECT_FALSE(v.hold_checkpoint);
  check();
}

// The superblock of the previous resync is being written. Its completion must not count for this resync.
TEST_F(RejoinTest, AResetWaitsForTheEndOfAResync) {
  v.disk.begin_sync(epoch(1), std::nullopt);
  target.begin({1, epoch(1)});
  ASSERT_EQ(target.take(SyncEnd{epoch(1), Lsn{0}}), "");
  settle([&] { target.advance(); });
  ASSERT_TRUE(target.ends());
  target.drop();
  rejoin.reset(reset(true));
  EXPECT_FALSE(rejoin.stores_reset());
  target.on_consistent_durable();
  rejoin.advance();
  EXPECT_TRUE(rejoin.stores_reset());
  EXPECT_TRUE(v.disk.inconsistent());
  check();
}

TEST_F(RejoinTest, NothingIsCutWhileALogIsGivenUp) {
  records(2);
  rejoin.reset(reset(true));
  EXPECT_DEATH(rejoin.cut(cut_to(1)), "");
  EXPECT_DEATH(rejoin.reset(reset(true)), "");
}

}  // namespace
}  // namespace twinloft::repl::core
