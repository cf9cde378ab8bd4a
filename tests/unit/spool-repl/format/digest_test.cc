#include "twinloft/spool-repl/format/digest.h"

#include <gtest/gtest.h>

#include <numeric>

#include "samples.h"

namespace twinloft::repl {
namespace {

using namespace samples;

std::vector<Digest> some_digests() {
  std::vector<Digest> digests(digest_page_blocks);
  std::iota(digests.begin(), digests.end(), 7u);
  return digests;
}
std::vector<std::byte> page_of(const std::vector<Digest>& digests) {
  std::vector<std::byte> page(block_size);
  encode_digest_page(volume, 3, digests, page);
  return page;
}

TEST(Digest, BelongsToItsContentPlaceAndVolume) {
  std::vector<std::byte> block(block_size, std::byte{5}), other = block, zeros(block_size);
  other[4095] = std::byte{4};
  Digest digest = digest_of(volume, Lba{9}, block);
  EXPECT_GT(digest, digest_zeros);
  EXPECT_TRUE(digest_fits(digest, volume, Lba{9}, block));
  EXPECT_FALSE(digest_fits(digest, volume, Lba{9}, other));
  EXPECT_FALSE(digest_fits(digest, volume, Lba{10}, block)) << "a write that went elsewhere";
  EXPECT_FALSE(digest_fits(digest, other_volume, Lba{9}, block));
  EXPECT_TRUE(digest_fits(digest_zeros, volume, Lba{9}, zeros));
  zeros[4095] = std::byte{1};
  EXPECT_FALSE(digest_fits(digest_zeros, volume, Lba{9}, zeros));
  EXPECT_TRUE(digest_fits(digest_unknown, volume, Lba{9}, other));
}

TEST(DigestPage, ReturnsWhatWasStored) {
  for (std::size_t n : {1u, 127u, 128u, 1016u}) {
    std::vector<Digest> digests = some_digests(), back(n);
    digests.resize(n);
    EXPECT_EQ(decode_digest_page(page_of(digests), volume, 3, back), 0u);
    EXPECT_EQ(back, digests);
  }
}

// Each sector on its own: a power cut may leave some of the new ones beside some of the old.
TEST(DigestPage, ADamagedSectorIsLostAndNoOther) {
  auto page = page_of(some_digests());
  for (std::size_t bit = 0; bit < page.size() * 8; bit += 61) {
    page[bit / 8] ^= std::byte{1} << (bit % 8);
    std::vector<Digest> back(digest_page_blocks), right = some_digests();
    EXPECT_EQ(decode_digest_page(page, volume, 3, back), 1u) << bit;
    std::size_t first = bit / 8 / digest_sector_bytes * digest_sector_blocks;
    std::fill_n(right.begin() + static_cast<std::ptrdiff_t>(first), digest_sector_blocks, digest_unknown);
    ASSERT_EQ(back, right) << bit;
    page[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(DigestPage, OfAnotherPlaceOrVolumeIsLost) {
  auto page = page_of(some_digests());
  std::vector<Digest> back(digest_page_blocks);
  EXPECT_EQ(decode_digest_page(page, volume, 4, back), 8u);
  EXPECT_EQ(back, std::vector<Digest>(digest_page_blocks, digest_unknown));
  EXPECT_EQ(decode_digest_page(page, other_volume, 3, back), 8u);
  EXPECT_EQ(decode_digest_page(std::vector<std::byte>(block_size), volume, 3, back), 8u) << "zeros are no page";
}

}  // namespace
}  // namespace twinloft::repl
