#include "twinloft/spool-repl/core/block_index.h"

#include <gtest/gtest.h>

#include "twinloft/spool-repl/journal/aligned.h"

namespace twinloft::repl::core {
namespace {

// A model of the index, with one entry for each block.
class Model {
 public:
  struct Entry {
    BlockIndex::Kind kind = BlockIndex::Kind::absent;
    Slot slot = 0;
    std::uint64_t serial = 0;
  };
  explicit Model(std::uint64_t blocks) : at(blocks) {}
  std::vector<Entry> at;
};

constexpr std::uint64_t blocks = 48;

void compare(const BlockIndex& index, const Model& model, const Arena& arena) {
  std::size_t data = 0;
  bool any = false;
  for (std::uint64_t b = 0; b < blocks; ++b) {
    auto found = index.find(Lba{b});
    const auto& want = model.at[b];
    ASSERT_EQ(found.kind, want.kind) << "block " << b;
    any = any || want.kind != BlockIndex::Kind::absent;
    if (want.kind == BlockIndex::Kind::absent) continue;
    ASSERT_EQ(found.serial, want.serial) << "block " << b;
    if (want.kind != BlockIndex::Kind::data) continue;
    ASSERT_EQ(found.slot, want.slot) << "block " << b;
    data++;
  }
  ASSERT_EQ(index.data_blocks(), data);
  ASSERT_EQ(index.empty(), !any);
  ASSERT_EQ(arena.used(), data) << "each entry holds its slot, and no other entry does";
}

// zeros_within() of any range agrees with find() for each block.
void compare_zeros(const BlockIndex& index, const Model& model, std::uint64_t from, std::uint64_t count) {
  std::vector<BlockIndex::ZeroExtent> found;
  index.zeros_within(Lba{from}, count, found);
  std::vector<std::uint64_t> serial(blocks);
  std::uint64_t next = from;
  for (const auto& z : found) {
    ASSERT_GE(z.lba.v, next) << "in order, disjoint, within the range";
    ASSERT_GT(z.blocks, 0u);
    next = z.lba.v + z.blocks;
    ASSERT_LE(next, from + count);
    for (std::uint64_t b = z.lba.v; b < next; ++b) serial[b] = z.serial;
  }
  for (std::uint64_t b = from; b < from + count; ++b) {
    bool zeros = model.at[b].kind == BlockIndex::Kind::zeros;
    ASSERT_EQ(serial[b], zeros ? model.at[b].serial : 0) << "block " << b;
  }
}

TEST(BlockIndexTest, AgainstOneEntryABlock) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRandom random(seed);
    journal::AlignedBuffer memory(2 * blocks * block_size);
    Arena arena(memory.span());
    BlockIndex index(arena);
    Model model(blocks);
    for (std::uint64_t step = 1; step <= 1500; ++step) {
      std::uint64_t from = random.below(blocks), count = 1 + random.below(blocks - from);
      std::uint64_t serial = 1 + random.below(6);
      switch (random.below(8)) {
        case 0:
        case 1:
        case 2: {
          Slot slot = arena.take();
          index.put_data(Lba{from}, slot, serial);
          arena.unref(slot);
          model.at[from] = {BlockIndex::Kind::data, slot, serial};
          break;
        }
        case 3:
        case 4:
          index.put_zeros(Lba{from}, count, serial);
          for (std::uint64_t b = from; b < from + count; ++b)
            model.at[b] = {BlockIndex::Kind::zeros, 0, serial};
          break;
        case 5:
          index.erase_data_if(Lba{from}, serial);
          if (model.at[from].kind == BlockIndex::Kind::data && model.at[from].serial == serial)
            model.at[from] = {};
          break;
        case 6:
          index.erase_zeros_if(Lba{from}, count, serial);
          for (std::uint64_t b = from; b < from + count; ++b)
            if (model.at[b].kind == BlockIndex::Kind::zeros && model.at[b].serial == serial) model.at[b] = {};
          break;
        default:
          if (random.below(100) != 0) break;
          index.clear();
          model.at.assign(blocks, {});
      }
      ASSERT_NO_FATAL_FAILURE(compare(index, model, arena)) << "seed " << seed << " step " << step;
      ASSERT_NO_FATAL_FAILURE(compare_zeros(index, model, from, count))
          << "seed " << seed << " step " << step;
    }
  }
}

TEST(BlockIndexTest, ZerosOverTheWholeVolume) {
  journal::AlignedBuffer memory(4 * block_size);
  Arena arena(memory.span());
  BlockIndex index(arena);
  Slot slot = arena.take();
  index.put_data(Lba{7}, slot, 1);
  arena.unref(slot);
  index.put_zeros(Lba{0}, UINT32_MAX, 2);
  EXPECT_EQ(arena.used(), 0u);
  EXPECT_EQ(index.find(Lba{7}).kind, BlockIndex::Kind::zeros);
  EXPECT_EQ(index.find(Lba{UINT32_MAX - 1ull}).kind, BlockIndex::Kind::zeros);
  EXPECT_EQ(index.find(Lba{UINT32_MAX}).kind, BlockIndex::Kind::absent);
}

TEST(BlockIndexTest, AWatchedBlockTellsWhetherItWasPutSince) {
  journal::AlignedBuffer memory(4 * block_size);
  Arena arena(memory.span());
  BlockIndex index(arena);
  Slot slot = arena.take();
  for (std::uint64_t b : {3u, 7u, 9u, 20u}) index.watch(Lba{b});
  index.put_data(Lba{7}, slot, 1);
  index.erase_data_if(Lba{7}, 1);
  EXPECT_TRUE(index.touched(Lba{7})) << "also after it was removed";
  index.put_zeros(Lba{8}, 2, 2);
  EXPECT_TRUE(index.touched(Lba{9}));
  EXPECT_FALSE(index.touched(Lba{3}) || index.touched(Lba{20}) || index.touched(Lba{8}));
  index.unwatch(Lba{7});
  EXPECT_FALSE(index.touched(Lba{7}));
  index.watch(Lba{9});
  EXPECT_FALSE(index.touched(Lba{9})) << "counted again";
  index.clear();
  EXPECT_TRUE(index.touched(Lba{3}) && index.touched(Lba{9}) && index.touched(Lba{20}));
  arena.unref(slot);
}

}  // namespace
}  // namespace twinloft::repl::core
