#include "block_set.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "twinloft/base/random.h"

namespace twinloft::repl::journal {
namespace {

TEST(BlockSet, ReportsEachBlockOnceInOrder) {
  SeededRandom random(7);
  for (int round = 0; round < 200; ++round) {
    BlockSet set;
    std::set<std::uint64_t> model;
    for (int i = 0; i < 60; ++i) {
      std::uint64_t lba = random.below(80), blocks = 1 + random.below(12);
      std::vector<std::uint64_t> expected, got;
      for (std::uint64_t b = lba; b < lba + blocks; ++b)
        if (model.insert(b).second) expected.push_back(b);
      set.add(lba, blocks, [&](std::uint64_t at, std::uint64_t n) {
        for (std::uint64_t b = at; b < at + n; ++b) got.push_back(b);
      });
      ASSERT_EQ(got, expected) << "round " << round << ", range " << lba << "+" << blocks;
    }
  }
}

}  // namespace
}  // namespace twinloft::repl::journal
