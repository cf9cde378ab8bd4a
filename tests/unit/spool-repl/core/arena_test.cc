#include "twinloft/spool-repl/core/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "twinloft/spool-repl/core/effects.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::core {
namespace {

struct ArenaTest : testing::Test {
  static constexpr std::size_t blocks = 200;  // not a multiple of the bits in a word
  std::vector<std::byte> memory = std::vector<std::byte>(blocks * block_size);
  Arena arena{memory};

  std::vector<Slot> take(std::size_t n) {
    std::vector<Slot> out;
    for (std::size_t i = 0; i < n; ++i) out.push_back(arena.take());
    return out;
  }
};

TEST_F(ArenaTest, GivesEachSlotOnceAndCounts) {
  auto all = take(blocks);
  EXPECT_EQ(std::set<Slot>(all.begin(), all.end()).size(), blocks);
  EXPECT_EQ(*std::max_element(all.begin(), all.end()), blocks - 1);
  EXPECT_EQ(arena.free(), 0u);
  EXPECT_EQ(arena.used(), blocks);
  EXPECT_EQ(arena.data(all[1]), memory.data() + std::size_t{all[1]} * block_size);
  arena.unref(all[77]);
  EXPECT_EQ(arena.free(), 1u);
  EXPECT_EQ(arena.take(), all[77]);
}

TEST_F(ArenaTest, WhatIsTakenTogetherLiesSideBySide) {
  auto first = take(70);
  for (Slot s : first) arena.unref(s);
  auto second = take(70);  // follows the first range, although the first range is free again
  for (std::size_t i = 1; i < second.size(); ++i) EXPECT_EQ(second[i], second[i - 1] + 1);
  EXPECT_EQ(second[0], first.back() + 1);
  auto rest = take(blocks - 140);
  EXPECT_EQ(rest.back(), blocks - 1);
  EXPECT_EQ(arena.take(), first[0]);
}

TEST_F(ArenaTest, AReferenceKeepsASlot) {
  Slot s = arena.take();
  arena.ref(s);
  arena.unref(s);
  EXPECT_EQ(arena.used(), 1u);
  auto others = take(blocks - 1);
  EXPECT_EQ(std::count(others.begin(), others.end(), s), 0);
  arena.unref(s);
  EXPECT_EQ(arena.take(), s);
}

// Compares with a plain set, at many fill levels.
TEST_F(ArenaTest, AgreesWithASetOfSlots) {
  std::mt19937 random(1);
  std::set<Slot> used;
  for (int i = 0; i < 20000; ++i) {
    bool fills = random() % 1000 < (i / 2000 % 2 ? 300u : 700u);
    if (fills && used.size() < blocks) {
      EXPECT_TRUE(used.insert(arena.take()).second);
    } else if (!used.empty()) {
      auto it = std::next(used.begin(), static_cast<std::ptrdiff_t>(random() % used.size()));
      arena.unref(*it);
      used.erase(it);
    }
    ASSERT_EQ(arena.used(), used.size());
  }
}

TEST_F(ArenaTest, MisuseStopsTheProcess) {
  EXPECT_DEATH(arena.unref(0), "refs_");
  EXPECT_DEATH(arena.ref(0), "refs_");
  (void)take(blocks);
  EXPECT_DEATH((void)arena.take(), "free_ > 0");
}

TEST(Pieces, NeighboursInMemoryAreOne) {
  std::vector<std::byte> memory(4 * block_size);
  std::vector<IoPiece> pieces;
  add_piece(pieces, memory.data(), block_size);
  add_piece(pieces, memory.data() + block_size, block_size);
  add_piece(pieces, memory.data() + 3 * block_size, block_size);
  add_piece(pieces, memory.data() + 2 * block_size, block_size);  // before the last piece, so not joined
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].bytes, 2 * block_size);
  EXPECT_EQ(bytes_of(pieces), 4 * block_size);
}

}  // namespace
}  // namespace twinloft::repl::core
