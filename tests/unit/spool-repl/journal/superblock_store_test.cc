#include "replica.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::repl::journal {
namespace {

void damage(Replica& r, int copy) {
  r.journal.bytes[superblock_offset[copy] + 300] ^= std::byte{0x40};
}
bool copies_are_equal(const Replica& r) {
  auto a = r.journal.bytes.begin(), b = a + superblock_offset[1];
  return std::equal(a, a + block_size, b);
}

TEST(SuperblockStore, EachCopyAloneIsEnoughAndIsRepaired) {
  for (int copy : {0, 1}) {
    Replica r;
    r.append({{3, 1, 7}});
    damage(r, copy);
    auto out = load_superblock(r.journal);
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_TRUE(out->repaired);
    EXPECT_EQ(out->superblock, r.sb);
    EXPECT_TRUE(copies_are_equal(r));
    EXPECT_EQ(r.journal.unsynced, 0u);
    auto again = load_superblock(r.journal);
    ASSERT_TRUE(again);
    EXPECT_FALSE(again->repaired);
  }
}

TEST(SuperblockStore, AnUnreadableCopyIsRepairedToo) {
  for (int copy : {0, 1}) {
    Replica r;
    r.journal.fails = [&](std::uint64_t at, std::uint64_t, bool write) {
      return !write && at == superblock_offset[copy];
    };
    auto out = recover(r.journal, r.data);
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_TRUE(out->report.superblock_repaired);
  }
}

TEST(SuperblockStore, BothDamagedIsRefusedAndNothingWritten) {
  Replica r;
  damage(r, 0), damage(r, 1);
  r.forget_writes();
  auto out = recover(r.journal, r.data);
  ASSERT_FALSE(out);
  EXPECT_TRUE(
      fails_with(out.error(), Errc::corrupt, {"j.img", "both copies", "Nothing was changed", "peer"}));
  EXPECT_EQ(r.writes(), 0u);
}

TEST(SuperblockStore, NoJournalAtAll) {
  MemoryFile empty(std::vector<std::byte>(4u << 20), "x.img"), tiny(std::vector<std::byte>(4096), "y.img");
  EXPECT_TRUE(fails_with(load_superblock(empty).error(), Errc::not_found, {"x.img", "no superblock"}));
  EXPECT_TRUE(fails_with(load_superblock(tiny).error(), Errc::not_found, {"y.img", "too small"}));
  EXPECT_EQ(empty.writes, 0u);
}

TEST(SuperblockStore, TheNewerCopyWins) {
  for (int newer : {0, 1}) {
    Replica r;
    Superblock sb = r.sb;
    sb.generation += 5;
    sb.commit = Lsn{0};
    sb.incarnation = 77;
    encode_superblock(sb, MutableByteSpan(r.journal.bytes).subspan(superblock_offset[newer], block_size));
    auto out = load_superblock(r.journal);
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_EQ(out->superblock.incarnation, 77u);
    EXPECT_TRUE(copies_are_equal(r));
  }
}

TEST(SuperblockStore, AFeatureOfALaterVersionIsNamed) {
  Replica r;
  Superblock sb = r.sb;
  sb.feature_incompat = 4;
  ASSERT_TRUE(store_superblock(r.journal, sb));
  r.forget_writes();
  auto out = recover(r.journal, r.data);
  ASSERT_FALSE(out);
  EXPECT_TRUE(fails_with(out.error(), Errc::invalid, {"features 0x4"}));
  EXPECT_EQ(r.writes(), 0u);
}

// In one copy or in both. This must not be reported as damage, or its owner would create the replica again.
TEST(SuperblockStore, AnotherVersionIsNamed) {
  for (int copies : {1, 2}) {
    Replica r;
    for (int i = 0; i < copies; ++i) {
      MutableByteSpan block{r.journal.bytes.data() + superblock_offset[i], block_size};
      store_le(block.data() + 12, load_le<std::uint32_t>(block.data() + 12) + 1);
      store_le(block.data() + 8, std::uint32_t{0});
      store_le(block.data() + 8, crc32c(block));
    }
    r.forget_writes();
    auto out = recover(r.journal, r.data);
    ASSERT_FALSE(out);
    EXPECT_TRUE(
        fails_with(out.error(), Errc::invalid, {"format version", "run the release that made the volume"}));
    EXPECT_EQ(r.writes(), 0u);
  }
}

// First copy, sync, second copy, sync: after any failure, one copy is intact.
TEST(SuperblockStore, OneWholeCopyAtEveryMoment) {
  Replica r;
  int syncs_seen = 0;
  Superblock sb = r.sb;
  sb.generation++;
  r.journal.fails = [&](std::uint64_t at, std::uint64_t, bool write) {
    if (!write) return false;
    if (at == superblock_offset[1]) {
      EXPECT_EQ(r.journal.unsynced, 0u) << "the second copy waits until the first is durable";
      syncs_seen++;
    }
    return false;
  };
  ASSERT_TRUE(store_superblock(r.journal, sb));
  EXPECT_EQ(syncs_seen, 1);
  EXPECT_EQ(r.journal.unsynced, 0u);
}

}  // namespace
}  // namespace twinloft::repl::journal
