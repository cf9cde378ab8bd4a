// The image of a volume whose blocks have another order in the data area.
#include "twinloft/spool-repl/journal/image.h"

#include <gtest/gtest.h>

#include "../support/memory_file.h"

namespace twinloft::repl::journal {
namespace {

MemoryFile blocks(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (int value : values) bytes.insert(bytes.end(), block_size, std::byte(value));
  return MemoryFile(std::move(bytes));
}

TEST(Image, ReadsThroughTheHomeMapAndThePiecesOverIt) {
  // Blocks 0 and 1 are after blocks 2 to 5.
  HomeMap map = HomeMap::of({{Lba{0}, 4, 2}, {Lba{2}, 0, 4}}).value();
  MemoryFile data = blocks({2, 3, 4, 5, 10, 11}), record = blocks({0, 33});
  Image image(data, map, {{3, 1, &record, block_size}, {5, 1, nullptr, 0}});
  EXPECT_EQ(image.size_bytes(), 6u * block_size);
  std::vector<std::byte> out(6 * block_size);
  ASSERT_TRUE(image.read(0, out));
  std::vector<int> found;
  for (std::size_t i = 0; i < 6; ++i) found.push_back(std::to_integer<int>(out[i * block_size]));
  EXPECT_EQ(found, (std::vector{10, 11, 2, 33, 4, 0}));
}

}  // namespace
}  // namespace twinloft::repl::journal
