#include "twinloft/spool-repl/core/dirty.h"

#include <gtest/gtest.h>

namespace twinloft::repl::core {
namespace {

Epoch epoch_numbered(std::uint64_t counter) {
  Epoch e{counter, {}};
  e.id.bytes[0] = static_cast<std::byte>(counter);
  return e;
}

struct DirtyTest : testing::Test {
  Superblock sb;
  std::vector<BitmapWrite> out;
  DirtyTest() {
    sb.volume_blocks = 3 * bitmap_page_blocks - 70;
    sb.bitmap_offset = 1 << 20;
    sb.bitmap_bytes = 3 * block_size;
  }
  DirtyMap map(bool known = true) {
    return DirtyMap({2, known, {}, {}}, 1, sb.volume_blocks,
                    std::vector<std::uint64_t>(bitmap_words(sb.volume_blocks)));
  }
  std::size_t written(DirtyMap& m, DirtyMap::Pages which) {
    out.clear();
    m.write(which, sb, out);
    std::size_t pages = 0;
    for (const BitmapWrite& w : out) pages += w.bytes.size() / block_size;
    return pages;
  }
};

TEST_F(DirtyTest, MarksAcrossWordsAndPages) {
  DirtyMap m = map();
  m.mark(Lba{bitmap_page_blocks - 3}, 70);
  EXPECT_EQ(m.count(), 70u);
  m.mark(Lba{bitmap_page_blocks - 3}, 2);
  EXPECT_EQ(m.count(), 70u) << "counted once";
  EXPECT_EQ(written(m, DirtyMap::Pages::lacking), 2u);
  EXPECT_EQ(out.size(), 1u) << "adjacent pages are written together";
  EXPECT_EQ(out[0].offset, sb.bitmap_offset + sb.bitmap_bytes);
  EXPECT_EQ(written(m, DirtyMap::Pages::lacking), 0u);
}

TEST_F(DirtyTest, AClearedPageIsWrittenOnlyAfterSince) {
  DirtyMap m = map();
  m.mark(Lba{5}, 1);
  EXPECT_EQ(written(m, DirtyMap::Pages::lacking), 1u);
  m.covered(epoch_numbered(1), {Lsn{9}, {}}, true);
  EXPECT_EQ(m.count(), 0u);
  EXPECT_EQ(m.slot().since.lsn, Lsn{9});
  EXPECT_EQ(written(m, DirtyMap::Pages::lacking), 0u) << "an extra mark on the disk is harmless";
  EXPECT_EQ(written(m, DirtyMap::Pages::any_change), 1u);
  EXPECT_EQ(written(m, DirtyMap::Pages::any_change), 0u);
}

TEST_F(DirtyTest, WhatNeverReachedTheDiskNeedsNoClearing) {
  DirtyMap m = map();
  m.mark(Lba{5}, 1);
  m.covered(epoch_numbered(1), {Lsn{9}, {}}, true);
  EXPECT_EQ(written(m, DirtyMap::Pages::any_change), 0u);
}

TEST_F(DirtyTest, CoveredInPartKeepsTheMarks) {
  DirtyMap m = map();
  m.mark(Lba{5}, 1);
  m.covered(epoch_numbered(1), {Lsn{9}, {}}, false);
  EXPECT_EQ(m.count(), 1u);
  EXPECT_EQ(m.slot().since.lsn, Lsn{9});
  m.covered(epoch_numbered(1), {Lsn{7}, {}}, true);
  EXPECT_EQ(m.slot().since.lsn, Lsn{9}) << "never backwards";
  EXPECT_EQ(m.count(), 1u);
}

// Until the superblock has the new start LSN, all marks must stay on the disk.
TEST_F(DirtyTest, AfterAPartingOnlyWhatCameLaterStaysMarked) {
  DirtyMap m = map();
  m.mark(Lba{5}, 1);
  m.part(epoch_numbered(1), {Lsn{9}, {}});
  EXPECT_EQ(m.slot().since.lsn, Lsn{9});
  m.mark(Lba{7}, 2);
  ASSERT_EQ(written(m, DirtyMap::Pages::lacking), 1u);
  std::vector<std::uint64_t> words(bitmap_page_words);
  ASSERT_TRUE(decode_bitmap_page(ByteSpan(out[0].bytes), sb.volume, 1, 0, words));
  EXPECT_EQ(words[0], 0b1'1010'0000u);
  m.since_is_durable(Lsn{8});
  EXPECT_EQ(m.count(), 3u) << "a superblock from before the split";
  m.since_is_durable(Lsn{9});
  EXPECT_EQ(m.count(), 2u);
  EXPECT_EQ(m.words()[0], 0b1'1000'0000u);
  EXPECT_EQ(written(m, DirtyMap::Pages::any_change), 1u) << "the disk has an extra mark";
  m.since_is_durable(Lsn{12});
  EXPECT_EQ(m.count(), 2u) << "once is enough";
}

TEST_F(DirtyTest, APartingThatIsMadeUpForLeavesNothingBehind) {
  DirtyMap m = map();
  m.mark(Lba{5}, 1);
  m.part(epoch_numbered(1), {Lsn{9}, {}});
  m.mark(Lba{7}, 1);
  m.covered(epoch_numbered(1), {Lsn{20}, {}}, true);
  EXPECT_EQ(m.count(), 0u);
  m.since_is_durable(Lsn{20});
  m.mark(Lba{8}, 1);
  EXPECT_EQ(m.count(), 1u);
}

TEST_F(DirtyTest, AnUnknownOneIsKnownOnceNothingIsMissing) {
  DirtyMap m({3, false, {}, {}}, 0, sb.volume_blocks, {});
  m.mark(Lba{5}, 1);
  EXPECT_EQ(written(m, DirtyMap::Pages::any_change), 0u) << "the bitmap is not valid yet";
  m.covered(epoch_numbered(1), {Lsn{9}, {}}, false);
  EXPECT_FALSE(m.slot().known);
  m.covered(epoch_numbered(1), {Lsn{12}, {}}, true);
  EXPECT_TRUE(m.slot().known);
  EXPECT_EQ(written(m, DirtyMap::Pages::any_change), 3u) << "whatever the previous user of the slot has left";
}

TEST_F(DirtyTest, ASlotThatIsNotInUseMarksNothing) {
  DirtyMap m({}, 3, sb.volume_blocks, {});
  m.mark(Lba{5}, 10);
  EXPECT_EQ(m.count(), 0u);
  EXPECT_TRUE(m.words().empty());
  EXPECT_EQ(written(m, DirtyMap::Pages::any_change), 0u);
}

TEST_F(DirtyTest, BitsBeyondTheVolumeDoNotCount) {
  DirtyMap m({2, true, {}, {}}, 1, 70, {~std::uint64_t{0}, ~std::uint64_t{0}});
  EXPECT_EQ(m.count(), 70u);
}

}  // namespace
}  // namespace twinloft::repl::core
