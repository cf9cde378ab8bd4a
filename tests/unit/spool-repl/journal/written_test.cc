#include "twinloft/spool-repl/journal/written.h"

#include <stdexcept>

#include "replica.h"
#include "twinloft/spool-repl/format/bitmap.h"

namespace twinloft::repl::journal {
namespace {

constexpr ReplicaId winner = 1, self = 2;

class WrittenSince : public testing::Test {
 protected:
  Written epoch(std::uint64_t counter, ReplicaSet in_sync, Lsn commit) {
    Body body;
    body.header = {RecordType::epoch, volume, Epoch{counter, volume}, r.last.lsn + 1, 1, r.last.hash,
                   hash_payload({}),  0};
    body.epoch_change = {{counter, volume}, self, in_sync, 0};
    Written w = r.store(body, {}, r.last.lsn, commit);
    table.push_back({{counter, volume}, w.mark.lsn, self, in_sync, 0});
    return w;
  }
  // Moves the tail, and stores what the daemon would store with it.
  void move_tail() {
    r.sb.epochs = table;
    r.move_tail_to_head();
  }
  void bitmap(ReplicaId peer, Lsn since, std::vector<std::uint64_t> words) {
    r.sb.dirty[1] = {peer, true, {1, volume}, {since, {}}};
    r.sb.generation++;
    ASSERT_TRUE(store_superblock(r.journal, r.sb));
    std::vector<std::byte> page(block_size);
    encode_bitmap_page(volume, 1, 0, words, page);
    ASSERT_TRUE(r.journal.write(r.sb.bitmap_offset + r.sb.bitmap_bytes, page));
  }
  Result<WrittenBlocks> look() {
    r.forget_writes();
    auto history = History::open(r.journal, r.data);
    if (!history) throw std::runtime_error(history.error().message);
    auto written = blocks_written_since(r.journal, *history, winner);
    EXPECT_EQ(r.writes(), 0u) << "reading changes nothing";
    return written;
  }
  static std::vector<std::uint64_t> blocks_of(const WrittenBlocks& written) {
    std::vector<std::uint64_t> out;
    for (std::uint64_t lba = 0; lba < volume_blocks; ++lba)
      if (written.any(lba, 1)) out.push_back(lba);
    EXPECT_EQ(out.size(), written.count());
    return out;
  }
  using Blocks = std::vector<std::uint64_t>;

  Replica r;
  EpochTable table;
};

TEST_F(WrittenSince, TheFirstEpochWithoutTheWinnerTellsWhatItHad) {
  epoch(1, set_of(winner) | set_of(self), Lsn{0});
  Written both = r.append({{1, 1, 0x11}});
  r.append({{2, 1, 0x22}}, both.mark.lsn, both.mark.lsn);  // in flight at the split
  epoch(2, set_of(self), both.mark.lsn);
  r.append({{3, 2, 0x33}, {100, 3, -1}}, Lsn{4}, Lsn{4});
  auto written = look();
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(written->parting().since, both.mark.lsn);
  EXPECT_EQ(written->parting().epoch.counter, 1u);
  EXPECT_EQ(blocks_of(*written), (Blocks{2, 3, 4, 100, 101, 102}));
}

TEST_F(WrittenSince, WhatTheJournalStillHoldsNeedsNoBitmap) {
  epoch(1, set_of(winner) | set_of(self), Lsn{0});
  Written before = r.append({{1, 1, 0x11}});
  move_tail();
  bitmap(winner, Lsn{1}, {2});  // block 1 was marked at its commit
  epoch(2, set_of(self), before.mark.lsn);
  r.append({{5, 1, 0x55}});
  auto written = look();
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(blocks_of(*written), (Blocks{5}));
}

TEST_F(WrittenSince, TheBitmapTellsWhatTheJournalHasNoLonger) {
  epoch(1, set_of(winner) | set_of(self), Lsn{0});
  Written before = r.append({{1, 1, 0x11}});
  epoch(2, set_of(self), before.mark.lsn);
  r.append({{7, 1, 0x77}});
  move_tail();
  bitmap(winner, before.mark.lsn, {1u << 7, 1});
  r.append({{9, 1, 0x99}});
  auto written = look();
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(blocks_of(*written), (Blocks{7, 9, 64}));
  EXPECT_EQ(written->parting().since, before.mark.lsn);
}

TEST_F(WrittenSince, AWinnerThatCameBackForAWhileHasMore) {
  epoch(1, set_of(winner) | set_of(self), Lsn{0});
  epoch(2, set_of(self), Lsn{1});
  Written sent = r.append({{4, 1, 0x44}});
  Written since = r.append({{6, 1, 0x66}});
  bitmap(winner, sent.mark.lsn, {});
  auto written = look();
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(blocks_of(*written), (Blocks{6}));
  EXPECT_EQ(written->parting().since, sent.mark.lsn);
  EXPECT_LT(written->parting().since, since.mark.lsn);
}

TEST_F(WrittenSince, OnlyTheLastTimeThatItWasLeftOutCounts) {
  epoch(1, set_of(self), Lsn{0});
  r.append({{1, 1, 0x11}});
  epoch(2, set_of(winner) | set_of(self), r.last.lsn);
  Written both = r.append({{2, 1, 0x22}});
  epoch(3, set_of(self), both.mark.lsn);
  r.append({{3, 1, 0x33}});
  epoch(4, set_of(self), r.last.lsn);  // a promotion, still without the winner
  r.append({{8, 1, 0x88}});
  auto written = look();
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(blocks_of(*written), (Blocks{3, 8}));
}

TEST_F(WrittenSince, ALogThatNeverLeftTheWinnerOutSaysNothing) {
  epoch(1, set_of(winner) | set_of(self), Lsn{0});
  r.append({{1, 1, 0x11}});
  auto refused = look();
  ASSERT_FALSE(refused);
  EXPECT_TRUE(fails_with(refused.error(), Errc::conflict, {"replica 1 never left the in-sync set"}));
}

TEST_F(WrittenSince, WithoutABitmapThatIsNeededNothingIsGuessed) {
  epoch(1, set_of(winner) | set_of(self), Lsn{0});
  epoch(2, set_of(self), Lsn{1});
  r.append({{7, 1, 0x77}});
  move_tail();
  auto unknown = look();
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(fails_with(unknown.error(), Errc::conflict, {"it is unknown what replica 1 has", "LSN 3"}));

  bitmap(winner, Lsn{1}, {1u << 7});
  ASSERT_TRUE(look());
  r.journal.bytes[r.sb.bitmap_offset + r.sb.bitmap_bytes + 20] ^= std::byte{1};
  auto damaged = look();
  ASSERT_FALSE(damaged);
  EXPECT_TRUE(
      fails_with(damaged.error(), Errc::corrupt, {"1 pages of the bitmap for replica 1 are damaged"}));
}

TEST(WrittenBlocks, RangesCrossWordsAndEndWithTheVolume) {
  WrittenBlocks written({}, std::vector<std::uint64_t>(2));
  written.add(62, 4);
  EXPECT_EQ(written.count(), 4u);
  EXPECT_FALSE(written.any(0, 62));
  EXPECT_TRUE(written.any(0, 63));
  EXPECT_TRUE(written.any(65, 1));
  EXPECT_FALSE(written.any(66, 62));
  EXPECT_FALSE(written.any(128, 1000));
}

}  // namespace
}  // namespace twinloft::repl::journal
