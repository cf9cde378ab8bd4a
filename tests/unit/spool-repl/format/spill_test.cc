// Chunks of the spill, and which of them a start takes. golden_test.cc has the bytes of a header.
#include "twinloft/spool-repl/format/spill.h"

#include <gtest/gtest.h>

#include <map>

#include "samples.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::repl {
namespace {

using namespace samples;

Bytes chunk(std::uint64_t number, std::uint64_t before, std::uint64_t last, ReplicaId replica = 2) {
  Bytes out(spill_header_bytes + block_size, static_cast<std::byte>(number));
  ByteSpan records = ByteSpan(out).subspan(spill_header_bytes);
  SpillChunk c{number, mark(before), mark(last), {4096}, {4096 + block_size}, 1, block_size, crc32c(records)};
  encode_spill_header(c, volume, replica, MutableByteSpan(out).first(spill_header_bytes));
  return out;
}

struct UsableSpillTest : testing::Test {
  std::map<std::uint64_t, Bytes> files;
  std::map<std::uint64_t, bool> read_whole;
  std::vector<std::uint64_t> usable() {
    std::vector<std::uint64_t> numbers, found;
    for (const auto& [n, bytes] : files) numbers.push_back(n);
    auto read = [&](std::uint64_t n, bool whole) -> Result<Bytes> {
      if (files[n].empty()) return fail(Errc::io, "cannot be read");
      read_whole[n] = whole;
      return whole ? files[n] : Bytes(files[n].begin(), files[n].begin() + spill_header_bytes);
    };
    for (const SpillChunk& c : usable_spill(numbers, read, volume, 2)) found.push_back(c.number);
    return found;
  }
};
using Numbers = std::vector<std::uint64_t>;

TEST_F(UsableSpillTest, TakesChunksThatContinueEachOther) {
  EXPECT_EQ(usable(), Numbers{});
  files = {{4, chunk(4, 10, 20)}, {5, chunk(5, 20, 30)}, {6, chunk(6, 30, 40)}};
  EXPECT_EQ(usable(), (Numbers{4, 5, 6}));
  EXPECT_TRUE(read_whole[6]);
  EXPECT_FALSE(read_whole[5]) << "a start reads only the newest as a whole";
}

TEST_F(UsableSpillTest, ATornNewestChunkIsLeftOut) {
  files = {{4, chunk(4, 10, 20)}, {5, chunk(5, 20, 30)}, {6, chunk(6, 30, 40)}};
  files[6][spill_header_bytes + 9] ^= std::byte{1};
  EXPECT_EQ(usable(), (Numbers{4, 5}));
  files[6].resize(spill_header_bytes + 100);
  EXPECT_EQ(usable(), (Numbers{4, 5}));
  files[6].resize(12);
  EXPECT_EQ(usable(), (Numbers{4, 5}));
  files[5].clear();
  EXPECT_EQ(usable(), Numbers{4});
}

TEST_F(UsableSpillTest, WhatIsBeforeAGapIsOfNoUse) {
  files = {{3, chunk(3, 5, 10)}, {5, chunk(5, 20, 30)}, {6, chunk(6, 30, 40)}};
  EXPECT_EQ(usable(), (Numbers{5, 6}));
  files[4] = chunk(4, 10, 19);  // does not continue to chunk 5
  EXPECT_EQ(usable(), (Numbers{5, 6}));
  files[4] = chunk(4, 10, 20);
  EXPECT_EQ(usable(), (Numbers{3, 4, 5, 6}));
  files[4] = chunk(4, 10, 20, 3);  // of another replica
  EXPECT_EQ(usable(), (Numbers{5, 6}));
  files[4].clear();
  EXPECT_EQ(usable(), (Numbers{5, 6}));
  files[6] = chunk(7, 30, 40);  // under another's name
  EXPECT_EQ(usable(), Numbers{5});
}

TEST(SpillHeaderTest, OfAnotherVolumeOrVersionIsRefusedInWords) {
  Bytes c = chunk(4, 10, 20);
  EXPECT_TRUE(decode_spill_chunk(c, volume, 2));
  EXPECT_EQ(decode_spill_header(c, volume, 3).error().code, Errc::conflict);
  EXPECT_EQ(decode_spill_header(c, other_volume, 2).error().code, Errc::conflict);
  store_le(c.data() + 8, std::uint32_t{2});
  store_le(c.data() + 4, std::uint32_t{0});
  store_le(c.data() + 4, crc32c(ByteSpan(c).first(spill_header_bytes)));
  EXPECT_EQ(decode_spill_header(c, volume, 2).error().code, Errc::invalid);
  c[100] ^= std::byte{1};
  EXPECT_EQ(decode_spill_header(c, volume, 2).error().code, Errc::corrupt);
}

TEST(StoredRecordTest, IsVerifiedAsAWhole) {
  Bytes content = block(0xa1);
  Body body = data_body({{Lba{5}, 1, ExtentKind::data}}, {content});
  Bytes meta = encoded(body);
  FrameHeader f = frame();
  f.volume = volume;
  f.meta_bytes = static_cast<std::uint32_t>(meta.size());
  f.total_blocks = meta_blocks_for(meta.size()) + body.header.payload_blocks;
  Bytes out(std::size_t{f.total_blocks} * block_size);
  encode_frame(f, MutableByteSpan(out).first(frame_header_bytes));
  std::copy(meta.begin(), meta.end(), out.begin() + frame_header_bytes);
  std::copy(content.begin(), content.end(), out.end() - block_size);
  out.resize(out.size() + 3 * block_size);  // other records follow
  auto read = decode_stored_record(out, volume, volume_blocks);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->bytes, f.total_blocks * block_size);
  EXPECT_TRUE(Bytes(read->meta.begin(), read->meta.end()) == meta);
  EXPECT_TRUE(Bytes(read->payload.begin(), read->payload.end()) == content);
  for (std::size_t at :
       {std::size_t{20}, std::size_t{frame_header_bytes + 8}, std::size_t{read->bytes - 1}}) {
    Bytes rotten = out;
    rotten[at] ^= std::byte{1};
    EXPECT_FALSE(decode_stored_record(rotten, volume, volume_blocks)) << at;
  }
  EXPECT_FALSE(decode_stored_record(ByteSpan(out).first(block_size), volume, volume_blocks)) << "cut short";
  EXPECT_FALSE(decode_stored_record(ByteSpan(out).first(100), volume, volume_blocks));
}

}  // namespace
}  // namespace twinloft::repl
