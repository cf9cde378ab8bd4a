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
  EXPECT_FALSE(digest_fits(digest, volume, Lba{10}, block)) << "a misdirected write";
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

// Each sector has its own checksum: a power cut may leave new sectors beside old ones.
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
  EXPECT_EQ(decode_digest_page(std::vector<std::byte>(block_size), volume, 3, back), 8u)
      << "zeros are not a page";
}

struct DigestTableTest : testing::Test {
  static constexpr std::uint64_t blocks = 5 * digest_page_blocks + 7;
  DigestTable table{volume, blocks};
  std::vector<std::byte> content = std::vector<std::byte>(block_size, std::byte{9}),
                         zeros = std::vector<std::byte>(block_size);
};

TEST_F(DigestTableTest, KnowsWhatWasPutAndNothingElse) {
  EXPECT_TRUE(table.fits(Lba{3}, content.data())) << "not known";
  table.put(Lba{3}, content.data());
  EXPECT_TRUE(table.fits(Lba{3}, content.data()));
  EXPECT_FALSE(table.fits(Lba{3}, zeros.data()));
  table.put_zeros(Lba{2}, blocks - 2);
  EXPECT_FALSE(table.fits(Lba{3}, content.data()));
  EXPECT_FALSE(table.fits(Lba{blocks - 1}, content.data()));
  EXPECT_TRUE(table.fits(Lba{1}, content.data()));
  table.forget();
  EXPECT_TRUE(table.fits(Lba{3}, content.data()));
  EXPECT_TRUE(DigestTable().fits(Lba{3}, content.data())) << "of a volume without digests";
}

// A page of equal digests needs no memory of its own, but gives the same answers.
TEST_F(DigestTableTest, PagesOfOneKindAreSmall) {
  std::uint64_t empty = table.memory();
  table.put_zeros(Lba{0}, blocks);
  EXPECT_EQ(table.memory(), empty);
  auto zero_pages = table.take_changed(1)[0].bytes;
  table.put(Lba{digest_page_blocks + 2}, content.data());
  EXPECT_EQ(table.memory(), empty + 4 * digest_page_blocks);
  EXPECT_FALSE(table.fits(Lba{digest_page_blocks + 2}, zeros.data()));
  EXPECT_FALSE(table.fits(Lba{digest_page_blocks + 1}, content.data()));
  table.put_zeros(Lba{digest_page_blocks + 2}, 1);
  auto again = table.take_changed(1);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(std::equal(again[0].bytes.begin(), again[0].bytes.end(), zero_pages.begin() + block_size))
      << "of zeros, one by one or at once";
  table.put_zeros(Lba{digest_page_blocks}, digest_page_blocks);
  EXPECT_EQ(table.memory(), empty);
  EXPECT_FALSE(table.changed());
  table.put(Lba{blocks - 1}, content.data());
  EXPECT_EQ(table.take_changed(1)[0].first, 5u);
  table.put_zeros(Lba{blocks - 7}, 7);
  EXPECT_EQ(table.memory(), empty) << "the last page, which is short";
  DigestTable back(volume, blocks);
  EXPECT_EQ(back.load(1, again[0].bytes), 0u);
  EXPECT_EQ(back.memory(), empty);
  EXPECT_FALSE(back.fits(Lba{digest_page_blocks}, content.data()));
  EXPECT_LE(table.memory(), DigestTable::memory_max(blocks));
}

TEST_F(DigestTableTest, TheNextContentIsNeitherUnknownNorZeros) {
  EXPECT_EQ(table.next_content(0, blocks), blocks);
  std::uint64_t first = digest_page_blocks + 2, last = blocks - 1;
  table.put(Lba{first}, content.data());
  table.put(Lba{last}, content.data());
  table.put_zeros(Lba{first + 1}, 2 * digest_page_blocks);
  EXPECT_EQ(table.next_content(0, blocks), first);
  EXPECT_EQ(table.next_content(0, first), first) << "none before the end";
  EXPECT_EQ(table.next_content(first, blocks), first);
  EXPECT_EQ(table.next_content(first + 1, blocks), last);
  EXPECT_EQ(DigestTable().next_content(3, 5), 5u);
}

// A start looks for known content in the whole volume. It must not take one step for each block of an unknown
// tebibyte.
// nothing is known.
TEST(DigestTable, AnUnknownTebibyteIsPassedOver) {
  std::uint64_t blocks = (std::uint64_t{1} << 40) / block_size;
  DigestTable table(volume, blocks);
  for (int times = 0; times < 1000; ++times) ASSERT_EQ(table.next_content(0, blocks / 1000), blocks / 1000);
}

// Pages are returned in runs of neighbours, and once. An unchanged page is not written.
TEST_F(DigestTableTest, ChangedPagesAreTakenOnce) {
  EXPECT_FALSE(table.changed());
  table.put(Lba{0}, content.data());
  table.put(Lba{1}, content.data());
  table.put(Lba{2 * digest_page_blocks}, content.data());
  table.put_zeros(Lba{4 * digest_page_blocks - 1}, 2);
  table.put(Lba{blocks - 1}, content.data());
  auto two = table.take_changed(2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].first, 0u);
  EXPECT_EQ(two[0].bytes.size(), block_size);
  EXPECT_EQ(two[1].first, 2u);
  EXPECT_EQ(two[1].bytes.size(), 4 * block_size) << "pages 2 to 5";
  EXPECT_FALSE(table.changed());
  table.put(Lba{0}, content.data());
  table.put_zeros(Lba{4 * digest_page_blocks - 1}, 2);
  EXPECT_FALSE(table.changed()) << "the same page again";

  table.forget();
  ASSERT_TRUE(table.changed());
  EXPECT_EQ(table.take_changed(0).size(), 0u);
  ASSERT_TRUE(table.changed());
  EXPECT_EQ(table.take_changed(1)[0].bytes.size(), 6 * block_size);
}

// Pages on both sides of a word of 64, some before the last position.
TEST_F(DigestTableTest, ChangesAreFoundWhereverTheyAre) {
  DigestTable large(volume, 200 * digest_page_blocks);
  auto change = [&](std::uint64_t page) { large.put(Lba{page * digest_page_blocks + 3}, content.data()); };
  for (std::uint64_t page : {199, 64, 130}) change(page);
  EXPECT_EQ(large.take_changed(2)[1].first, 130u);
  for (std::uint64_t page : {63, 198, 0}) change(page);
  std::vector<std::uint64_t> taken;
  while (large.changed()) taken.push_back(large.take_changed(1)[0].first);
  EXPECT_EQ(taken, (std::vector<std::uint64_t>{0, 63, 198})) << "198 and 199 are one run";
  EXPECT_TRUE(large.take_changed(1).empty());
}

TEST_F(DigestTableTest, ALostSectorIsWrittenAgain) {
  table.put(Lba{0}, content.data());
  table.put(Lba{300}, content.data());
  auto page = table.take_changed(1)[0].bytes;
  DigestTable back(volume, blocks);
  EXPECT_EQ(back.load(0, page), 0u);
  EXPECT_FALSE(back.changed());
  EXPECT_FALSE(back.fits(Lba{0}, zeros.data()));
  page[5] ^= std::byte{1};
  EXPECT_EQ(back.load(0, page), 1u);
  EXPECT_TRUE(back.changed());
  EXPECT_TRUE(back.fits(Lba{0}, zeros.data()));
  EXPECT_FALSE(back.fits(Lba{300}, zeros.data()));
}

}  // namespace
}  // namespace twinloft::repl
