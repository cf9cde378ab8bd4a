#include "twinloft/spool-repl/format/home_map.h"

#include <gtest/gtest.h>

#include <set>

namespace twinloft::repl {
namespace {

// 8 blocks: 0-2 are at 5-7, 3-6 at 0-3, 7 at 4. So 6 and 7 are adjacent in the data area too.
HomeMap permuted() {
  return HomeMap::of({{Lba{0}, 5, 3}, {Lba{3}, 0, 4}, {Lba{7}, 4, 1}}).value();
}

std::uint64_t block_at(const HomeMap& map, std::uint64_t lba) {
  return map.at(Lba{lba}).bytes() / block_size;
}

TEST(HomeMap, TheIdentityIsOneExtent) {
  HomeMap map = HomeMap::identity(100);
  EXPECT_EQ(map.volume_blocks(), 100u);
  EXPECT_EQ(map.at(Lba{0}).bytes(), 0u);
  EXPECT_EQ(map.at(Lba{99}).bytes(), 99u * block_size);
  EXPECT_EQ(map.run(Lba{7}, 93), 93u);
  EXPECT_TRUE(map.follows(Lba{1}));
  EXPECT_FALSE(map.follows(Lba{0}));
  auto all = map.extents(Lba{7}, 20);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].lba, Lba{7});
  EXPECT_EQ(all[0].blocks, 20u);
  EXPECT_EQ(all[0].at, map.at(Lba{7}));
}

TEST(HomeMap, OfASuperblockIsTheIdentityToday) {
  Superblock sb;
  sb.volume_blocks = 12;
  EXPECT_EQ(home_map_of(sb).volume_blocks(), 12u);
  EXPECT_EQ(block_at(home_map_of(sb), 11), 11u);
}

TEST(HomeMap, EachBlockHasAPlaceOfItsOwn) {
  HomeMap map = permuted();
  std::set<std::uint64_t> places;
  for (std::uint64_t lba = 0; lba < map.volume_blocks(); ++lba) places.insert(block_at(map, lba));
  EXPECT_EQ(places.size(), 8u);
  EXPECT_EQ(block_at(map, 1), 6u);
  EXPECT_EQ(block_at(map, 3), 0u);
  EXPECT_EQ(block_at(map, 7), 4u);
}

TEST(HomeMap, ARunEndsWhereTheDataAreaGoesOnElsewhere) {
  HomeMap map = permuted();
  EXPECT_EQ(map.run(Lba{0}, 8), 3u);
  EXPECT_EQ(map.run(Lba{1}, 1), 1u);
  EXPECT_EQ(map.run(Lba{3}, 5), 5u) << "6 and 7 are neighbours in the data area as well";
  EXPECT_TRUE(map.follows(Lba{2}));
  EXPECT_FALSE(map.follows(Lba{3}));
  EXPECT_TRUE(map.follows(Lba{7}));
}

TEST(HomeMap, ExtentsCoverTheRangeInItsOrder) {
  HomeMap map = permuted();
  auto all = map.extents(Lba{1}, 6);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].lba, Lba{1});
  EXPECT_EQ(all[0].blocks, 2u);
  EXPECT_EQ(all[0].at, map.at(Lba{1}));
  EXPECT_EQ(all[1].lba, Lba{3});
  EXPECT_EQ(all[1].blocks, 4u);
  EXPECT_EQ(all[1].at, map.at(Lba{3}));
  EXPECT_TRUE(map.extents(Lba{3}, 0).empty());
}

TEST(HomeMap, PiecesLeaveNoGapAndShareNoPlace) {
  EXPECT_FALSE(HomeMap::of({{Lba{0}, 0, 3}, {Lba{4}, 3, 1}})) << "LBA 3 has no home";
  EXPECT_FALSE(HomeMap::of({{Lba{1}, 0, 3}})) << "LBA 0 has no home";
  EXPECT_FALSE(HomeMap::of({{Lba{0}, 0, 0}})) << "a piece without blocks";
  EXPECT_FALSE(HomeMap::of({{Lba{0}, 4, 3}, {Lba{3}, 2, 3}})) << "block 4 of the data area is used twice";
  EXPECT_TRUE(HomeMap::of({{Lba{0}, 5, 3}, {Lba{3}, 2, 3}}));
}

TEST(HomeMapDeath, NothingLiesBehindTheVolume) {
  EXPECT_DEATH(permuted().at(Lba{8}), "");
  EXPECT_DEATH(permuted().run(Lba{4}, 5), "");
  EXPECT_DEATH(HomeMap().at(Lba{0}), "");
}

}  // namespace
}  // namespace twinloft::repl
