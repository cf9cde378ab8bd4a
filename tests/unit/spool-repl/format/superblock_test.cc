#include "twinloft/spool-repl/format/superblock.h"

#include <gtest/gtest.h>

#include "samples.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::repl {
namespace {

using namespace samples;

Bytes resealed(Bytes b) {
  store_le(b.data() + 8, std::uint32_t{0});
  store_le(b.data() + 8, crc32c(b));
  return b;
}

TEST(SuperblockFormat, RoundTrip) {
  auto out = decode_superblock(encoded(superblock()));
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(*out, superblock());
}

TEST(SuperblockFormat, AsManyEpochsAsItHolds) {
  Superblock in = superblock();
  in.epochs.clear();
  for (std::size_t i = 0; i < epoch_table_max; ++i) in.epochs.push_back({{i, volume}, Lsn{i * 10}, 1, 0b1});
  auto out = decode_superblock(encoded(in));
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(*out, in);
}

// A loss that has left the table, and still counts.
TEST(EpochTable, ALossIsHandedOn) {
  EpochTable table;
  auto entry = [](std::uint64_t i, std::uint32_t flags) {
    Uuid id;
    id.bytes[0] = static_cast<std::byte>(i);
    return EpochEntry{{i, id}, Lsn{i * 10}, 1, 0b1, flags};
  };
  table.note(entry(1, epoch_by_force | epoch_lossy));
  std::uint64_t i = 2;
  for (; i <= epoch_table_max + 5; ++i) table.note(entry(i, 0));
  EXPECT_EQ(table.size(), epoch_table_max);
  EXPECT_EQ(table.front().flags, epoch_lossy + 0u);
  for (std::size_t k = 1; k < table.size(); ++k) EXPECT_EQ(table[k].flags, 0u);
  // A start adds the epochs of its log again.
  EpochEntry first = table.front();
  table.note(entry(first.epoch.counter, 0));
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table.front(), first);
}

TEST(SuperblockFormat, EveryFlippedBitIsRefused) {
  Bytes good = encoded(superblock());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    auto out = decode_superblock(bad);
    ASSERT_FALSE(out) << "bit " << bit;
    EXPECT_EQ(out.error().code, bit < 64 ? Errc::not_found : Errc::corrupt);
  }
}

TEST(SuperblockFormat, NothingThere) {
  EXPECT_EQ(decode_superblock(Bytes(block_size)).error().code, Errc::not_found);
  EXPECT_EQ(decode_superblock(encoded(label())).error().code, Errc::not_found)
      << "a label is not a superblock";
  EXPECT_EQ(decode_data_label(encoded(superblock())).error().code, Errc::not_found);
}

TEST(SuperblockFormat, UnknownFeatureAndVersion) {
  Superblock sb = superblock();
  sb.feature_incompat = 0x10;
  auto out = decode_superblock(encoded(sb));
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Errc::invalid);
  EXPECT_NE(out.error().message.find("0x10"), std::string::npos) << out.error().message;
  Bytes newer = encoded(superblock());
  store_le(newer.data() + 12, load_le<std::uint32_t>(newer.data() + 12) + 1);
  out = decode_superblock(resealed(newer));
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Errc::invalid);
  EXPECT_NE(out.error().message.find("version"), std::string::npos) << out.error().message;
}

TEST(SuperblockFormat, ImpossibleFields) {
  auto refused = [](auto change) {
    Superblock sb = superblock();
    change(sb);
    return !decode_superblock(encoded(sb));
  };
  EXPECT_FALSE(refused([](Superblock&) {}));
  EXPECT_TRUE(refused([](Superblock& s) { s.volume = {}; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.replica = 0; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.replica = replica_id_max + 1; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.volume_blocks = 0; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.ring_offset++; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.ring_bytes += 512; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.ring_bytes = journal_ring_bytes_min - block_size; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.tail_pos.v++; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.bitmap_offset += 8; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.bitmap_bytes += 8; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.digest_offset += 8; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.digest_bytes += 4096; }));
}

TEST(SuperblockFormat, TooManyEpochs) {
  Bytes bad = encoded(superblock());
  constexpr std::size_t epochs_at = 200 + disk_state_bytes + 4 * 56;
  ASSERT_EQ(load_le<std::uint32_t>(bad.data() + epochs_at), 2u);
  store_le(bad.data() + epochs_at, static_cast<std::uint32_t>(epoch_table_max + 1));
  auto out = decode_superblock(resealed(bad));
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Errc::corrupt);
}

TEST(DataLabelFormat, RoundTripAndFlippedBits) {
  Bytes good = encoded(label());
  auto out = decode_data_label(good);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(*out, label());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(decode_data_label(bad)) << "bit " << bit;
  }
}

}  // namespace
}  // namespace twinloft::repl
