// Volumes whose blocks have another order in the data area.
#include "twinloft/spool-repl/format/home_map.h"

#include <gtest/gtest.h>

#include "resync.h"

namespace twinloft::repl::core {
namespace {

constexpr std::uint64_t volume_blocks = 1024;

// Pieces of 10 blocks in reverse order. The last piece is shorter, and is at the start of the data area.
HomeMap reversed() {
  std::vector<HomeMap::Piece> pieces;
  for (std::uint64_t lba = 0; lba + 10 <= volume_blocks; lba += 10)
    pieces.push_back({Lba{lba}, volume_blocks - 10 - lba, 10});
  std::uint64_t rest = volume_blocks % 10;
  pieces.push_back({Lba{volume_blocks - rest}, 0, rest});
  return HomeMap::of(pieces).value();
}

struct HomeMapTest : ResyncTest {
  HomeMap map = reversed();

  void replace(ReplicaId id, HomeMap of) {
    nodes[id - 1] = std::make_unique<Shell>(ShellOptions{.replica = id,
                                                         .config = config_of(id, nodes.size()),
                                                         .volume_blocks = volume_blocks,
                                                         .seed = 7,
                                                         .home_map = std::move(of)});
    delivered[id - 1] = 0;
  }
  void make_alone() {
    make(1);
    replace(1, map);
    ASSERT_TRUE(promote(1)->ok);
  }
  void write(std::uint64_t offset, std::size_t bytes, int value) {
    std::vector<std::byte> content = filled(bytes, value);
    node(1).submit(ClientOp::write, offset, static_cast<std::uint32_t>(bytes), content.data());
    exchange();
    auto flush = node(1).submit(ClientOp::flush);
    exchange();
    ASSERT_EQ(node(1).done.at(flush), 0);
  }
  std::vector<std::byte> read(std::uint64_t offset, std::size_t bytes) {
    std::vector<std::byte> back(bytes);
    auto id = node(1).submit(ClientOp::read, offset, static_cast<std::uint32_t>(bytes), back.data());
    exchange();
    EXPECT_EQ(node(1).done.at(id), 0);
    return back;
  }
  int at_home(ReplicaId id, std::uint64_t lba) {
    return std::to_integer<int>(node(id).data[map.at(Lba{lba}).bytes()]);
  }
  // The content of a replica's volume, in the volume's order.
  std::vector<std::byte> volume_of(ReplicaId id, const HomeMap& of) {
    std::vector<std::byte> all;
    for (std::uint64_t lba = 0; lba < volume_blocks; ++lba) {
      auto at = node(id).data.begin() + static_cast<std::ptrdiff_t>(of.at(Lba{lba}).bytes());
      all.insert(all.end(), at, at + block_size);
    }
    return all;
  }
};

TEST_F(HomeMapTest, AVolumeStoresAndReadsThroughItsMap) {
  make_alone();
  for (std::uint64_t lba = 5; lba < 35; ++lba) write(lba * block_size, block_size, static_cast<int>(lba));
  checkpoint(1);
  ASSERT_EQ(status(node(1)).dirty_blocks, 0u) << "reads come from the data area";
  for (std::uint64_t lba = 5; lba < 35; ++lba) EXPECT_EQ(at_home(1, lba), static_cast<int>(lba));
  std::vector<std::byte> back = read(4 * block_size, 32 * block_size);
  for (std::uint64_t lba = 5; lba < 35; ++lba)
    EXPECT_EQ(std::to_integer<int>(back[(lba - 4) * block_size]), static_cast<int>(lba)) << lba;
  EXPECT_EQ(back[0], std::byte{0});
  std::vector<std::byte> odd = read(9 * block_size + 512, 2 * block_size);
  EXPECT_EQ(odd.front(), std::byte{9});
  EXPECT_EQ(odd[block_size], std::byte{10});
  EXPECT_EQ(odd.back(), std::byte{11});
  EXPECT_EQ(status(node(1)).wrong_blocks, 0u) << "each block agrees with its digest";
}

TEST_F(HomeMapTest, APartOfABlockIsFilledUpFromItsHome) {
  make_alone();
  write(20 * block_size, block_size, 3);
  checkpoint(1);
  write(20 * block_size + 1024, 512, 4);
  checkpoint(1);
  std::vector<std::byte> back = read(20 * block_size, block_size);
  EXPECT_EQ(back[0], std::byte{3});
  EXPECT_EQ(back[1024], std::byte{4});
  EXPECT_EQ(back[1536], std::byte{3});
}

TEST_F(HomeMapTest, ZerosGoToEachExtent) {
  make_alone();
  write(0, 40 * block_size, 6);
  checkpoint(1);
  node(1).submit(ClientOp::write_zeroes, 5 * block_size, 30 * block_size);
  exchange();
  write(500 * block_size, block_size, 1);
  checkpoint(1);
  for (std::uint64_t lba = 0; lba < 40; ++lba)
    EXPECT_EQ(at_home(1, lba), lba < 5 || lba >= 35 ? 6 : 0) << lba;
}

// Each replica has its own map. Resync and repair use the volume's block numbers.
TEST_F(HomeMapTest, ReplicasWithDifferentMapsAreFilledAndMendEachOther) {
  make_pair();
  HomeMap identity = HomeMap::identity(volume_blocks);
  for (int round = 0; round < 2; ++round) {
    disconnect(1, 2);
    replace(2, map);
    if (round == 1) node(2).data = std::vector<std::byte>(volume_blocks * block_size, std::byte{3});
    connect(1, 2);
    exchange();
    fill(1, 15, 40, 8 + round);
    checkpoint(1);
    checkpoint(2);
    ASSERT_FALSE(status(node(2)).inconsistent);
    EXPECT_EQ(volume_of(2, map), volume_of(1, identity));
  }
  node(1).unreadable = {33};
  EXPECT_EQ(read(33 * block_size, block_size), filled(block_size, 9));
  EXPECT_EQ(status(node(1)).repaired_blocks, 1u);
  EXPECT_EQ(status(node(1)).unreadable_blocks, 0u);
}

// The replica with the other order is the source.
TEST_F(HomeMapTest, ASourceReadsThroughItsMap) {
  make(2);
  replace(1, map);
  connect(1, 2);
  exchange();
  ASSERT_TRUE(promote(1)->ok);
  fill(1, 0, 100, 3);
  fill(1, 45, 70, 5);
  checkpoint(1);
  disconnect(1, 2);
  replace(2, HomeMap::identity(volume_blocks));
  connect(1, 2);
  exchange();
  checkpoint(2);
  ASSERT_FALSE(status(node(2)).inconsistent);
  EXPECT_EQ(volume_of(2, HomeMap::identity(volume_blocks)), volume_of(1, map));
}

}  // namespace
}  // namespace twinloft::repl::core
