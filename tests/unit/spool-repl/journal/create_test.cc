#include "twinloft/spool-repl/journal/create.h"

#include "replica.h"

namespace twinloft::repl::journal {
namespace {

TEST(Create, RecoversToAnEmptyVolume) {
  Replica r;
  auto out = recover(r.journal, r.data);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->log.superblock.volume, volume);
  EXPECT_EQ(out->log.superblock.replica, 2u);
  EXPECT_EQ(out->log.superblock.volume_blocks, volume_blocks);
  EXPECT_EQ(out->log.superblock.tail, (LogMark{Lsn{0}, genesis_hash(volume, volume_blocks)}));
  EXPECT_TRUE(out->log.records.empty());
  EXPECT_EQ(out->log.commit, Lsn{0});
  EXPECT_FALSE(out->report.superblock_repaired);
  EXPECT_EQ(out->report.blocks_replayed, 0u);
}

TEST(Create, ZeroesWhatWasThere) {
  MemoryFile journal(std::vector<std::byte>(ring_offset + journal_ring_bytes_min, std::byte{0xee}));
  MemoryFile data(std::vector<std::byte>((volume_blocks + 1) * block_size, std::byte{0xee}));
  ASSERT_TRUE(create_replica({volume, 1, volume_blocks, true}, journal, data, true));
  EXPECT_EQ(std::count(data.bytes.begin(), data.bytes.begin() + volume_blocks * block_size, std::byte{0xee}),
            0);
  EXPECT_EQ(std::count(journal.bytes.begin(), journal.bytes.end(), std::byte{0xee}), 0);
  EXPECT_EQ(journal.unsynced + data.unsynced, 0u) << "everything is durable when it returns";
  EXPECT_TRUE(recover(journal, data));
}

TEST(Create, AJournalTooSmallSaysHowLargeItMustBe) {
  for (std::uint64_t blocks : {std::uint64_t{1}, volume_blocks, std::uint64_t{1} << 24}) {
    CreateOptions o{volume, 1, blocks, true};
    auto small = plan_layout(o, 4u << 20);
    ASSERT_FALSE(small);
    ASSERT_TRUE(fails_with(small.error(), Errc::invalid, {"4 MiB", "too small", "at least"}));
    const std::string& text = small.error().message;
    std::uint64_t mib = std::stoull(text.substr(text.find("at least") + 9));
    EXPECT_TRUE(plan_layout(o, mib << 20)) << "the requested size is enough";
    EXPECT_FALSE(plan_layout(o, (mib - 1) << 20)) << "no more than needed";
  }
}

TEST(Create, NothingIsWrittenWhereItCannotBeDone) {
  MemoryFile journal(std::vector<std::byte>(4u << 20)),
      data(std::vector<std::byte>(volume_blocks * block_size), "d.img");
  EXPECT_FALSE(create_replica({volume, 1, volume_blocks, false}, journal, data, true));
  EXPECT_EQ(journal.writes + data.writes, 0u);
  MemoryFile large(std::vector<std::byte>(ring_offset + journal_ring_bytes_min));
  auto out = create_replica({volume, 1, volume_blocks, true}, large, data, true);
  ASSERT_FALSE(out) << "no room for the label";
  EXPECT_TRUE(fails_with(out.error(), Errc::invalid, {"d.img", "needed"}));
  EXPECT_EQ(large.writes + data.writes, 0u);
}

TEST(Create, RefusesImpossibleVolumes) {
  EXPECT_FALSE(plan_layout({volume, 1, 0, false}, 1 << 30));
  EXPECT_FALSE(plan_layout({volume, 1, std::uint64_t{UINT32_MAX} + 1, false}, std::uint64_t{1} << 40));
  EXPECT_FALSE(plan_layout({volume, 0, 100, false}, 1 << 30));
  EXPECT_FALSE(plan_layout({volume, replica_id_max + 1, 100, false}, 1 << 30));
}

TEST(Create, PartsOfTheJournalDoNotOverlap) {
  for (std::uint64_t blocks : {1ull, 7ull, 32768ull, 32769ull, 1ull << 20}) {
    std::uint64_t bytes = (64u << 20) + 5000;
    auto sb = plan_layout({volume, 1, blocks, false}, bytes);
    ASSERT_TRUE(sb) << sb.error().message;
    EXPECT_GT(superblock_offset[1], superblock_offset[0]);
    EXPECT_GE(sb->bitmap_offset, superblock_offset[1] + block_size);
    EXPECT_GE(sb->bitmap_bytes * 8, blocks) << "a bit for each block";
    EXPECT_GE(sb->digest_offset, sb->bitmap_offset + bitmap_slots * sb->bitmap_bytes);
    EXPECT_GE(sb->digest_bytes, blocks * 4) << "a digest for each block";
    EXPECT_GE(sb->ring_offset, sb->digest_offset + sb->digest_bytes);
    EXPECT_LE(sb->ring_offset + sb->ring_bytes, bytes);
    std::vector<std::byte> block(block_size);
    encode_superblock(*sb, block);
    EXPECT_TRUE(decode_superblock(block));
  }
}

// The superblock is written last. A failure before that leaves no volume.
TEST(Create, AnInterruptedCreationLeavesNoVolume) {
  for (int stop = 0;; ++stop) {
    MemoryFile journal(std::vector<std::byte>(ring_offset + journal_ring_bytes_min)),
        data(std::vector<std::byte>((volume_blocks + 1) * block_size));
    int left = stop;
    auto count = [&left](std::uint64_t, std::uint64_t, bool write) { return write && left-- <= 0; };
    journal.fails = data.fails = count;
    bool made = create_replica({volume, 1, volume_blocks, true}, journal, data, true).has_value();
    if (made) {
      EXPECT_GT(stop, 5);
      return;
    }
    journal.fails = data.fails = nullptr;
    auto found = load_superblock(journal);
    if (found)
      EXPECT_TRUE(recover(journal, data)) << "one copy is intact, so everything before it is durable";
    else
      EXPECT_EQ(found.error().code, Errc::not_found);
  }
}

}  // namespace
}  // namespace twinloft::repl::journal
