#include "twinloft/spool-repl/format/bitmap.h"

#include <gtest/gtest.h>

#include "samples.h"

namespace twinloft::repl {
namespace {

using namespace samples;

std::vector<std::byte> page_of(std::vector<std::uint64_t> words) {
  std::vector<std::byte> page(block_size);
  encode_bitmap_page(volume, 1, 3, words, page);
  return page;
}

TEST(Bitmap, ARunOfBlocksIsSetAndNothingElse) {
  for (std::uint64_t lba : {0, 1, 63, 64, 65, 130})
    for (std::uint64_t blocks : {0, 1, 62, 63, 64, 65, 126}) {
      std::vector<std::uint64_t> words(4);
      set_bitmap_bits(words, Lba{lba}, blocks);
      for (std::uint64_t b = 0; b < 256; ++b)
        ASSERT_EQ(words[b / 64] >> b % 64 & 1, b >= lba && b < lba + blocks) << lba << ' ' << blocks;
    }
}

TEST(BitmapPage, ReturnsWhatWasStored) {
  std::vector<std::uint64_t> words(bitmap_page_words);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * 0x9e3779b97f4a7c15;
  std::vector<std::uint64_t> back(bitmap_page_words);
  ASSERT_TRUE(decode_bitmap_page(page_of(words), volume, 1, 3, back));
  EXPECT_EQ(back, words);
}

TEST(BitmapPage, AnyFlippedBitIsNoticed) {
  auto page = page_of({1, 2, 3});
  std::vector<std::uint64_t> back(3);
  for (std::size_t bit = 0; bit < page.size() * 8; bit += 7) {
    page[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_bitmap_page(page, volume, 1, 3, back)) << bit;
    page[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(decode_bitmap_page(page, volume, 1, 3, back));
}

TEST(BitmapPage, OfAnotherPlaceSlotOrVolumeIsRefused) {
  auto page = page_of({1});
  std::vector<std::uint64_t> back(1);
  EXPECT_FALSE(decode_bitmap_page(page, volume, 1, 4, back));
  EXPECT_FALSE(decode_bitmap_page(page, volume, 2, 3, back));
  EXPECT_FALSE(decode_bitmap_page(page, other_volume, 1, 3, back));
  EXPECT_FALSE(decode_bitmap_page(std::vector<std::byte>(block_size), volume, 1, 3, back))
      << "zeros are not a page";
}

}  // namespace
}  // namespace twinloft::repl
