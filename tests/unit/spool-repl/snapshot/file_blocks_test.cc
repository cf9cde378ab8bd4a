#include "twinloft/spool-repl/snapshot/file_blocks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fiemap.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::snapshot {
namespace {

using Asked = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

fiemap_extent extent(std::uint64_t physical, std::uint64_t length, std::uint32_t flags = 0) {
  fiemap_extent e{};
  e.fe_physical = physical, e.fe_length = length, e.fe_flags = flags;
  return e;
}

Asked asked_for(const fiemap_extent& e) {
  Asked asked;
  EXPECT_FALSE(extent_wanted(
      e, [&](std::uint64_t lba, std::uint64_t n) { return asked.emplace_back(lba, n), false; }));
  return asked;
}

TEST(FileBlocks, AnExtentIsAskedForByBlocks) {
  EXPECT_EQ(asked_for(extent(8 * block_size, 3 * block_size)), (Asked{{8, 3}}));
  EXPECT_EQ(asked_for(extent(8 * block_size + 512, block_size)), (Asked{{8, 2}})) << "begins within a block";
  EXPECT_EQ(asked_for(extent(9 * block_size - 1, 2)), (Asked{{8, 2}}));
  EXPECT_EQ(asked_for(extent(5 * block_size, block_size, FIEMAP_EXTENT_UNWRITTEN)), (Asked{{5, 1}}));
}

TEST(FileBlocks, ContentInTheInodeIsJudgedByTheInodesBlock) {
  EXPECT_EQ(
      asked_for(extent(70 * block_size + 160, 60, FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED)),
      (Asked{{70, 1}}));
}

TEST(FileBlocks, WhatLiesNobodyKnowsWhereIsWanted) {
  auto none = [](std::uint64_t, std::uint64_t) { return false; };
  EXPECT_TRUE(extent_wanted(extent(0, block_size, FIEMAP_EXTENT_UNKNOWN), none));
  EXPECT_TRUE(extent_wanted(extent(0, block_size, FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC), none));
}

class FileOnDisk : public testing::Test {
 protected:
  FileOnDisk() {
    const char* tmp = std::getenv("TMPDIR");
    file = Fd(::open(tmp ? tmp : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  }
  Fd file;
};

// More extents than one call to the kernel returns.
TEST_F(FileOnDisk, AllOfItIsLookedAt) {
  constexpr std::uint64_t pieces = 300;
  std::vector<std::byte> block(block_size, std::byte{1});
  for (std::uint64_t i = 0; i < pieces; ++i)
    ASSERT_EQ(::pwrite(file.get(), block.data(), block.size(), static_cast<off_t>(i * 16 * block_size)),
              block_size);
  std::uint64_t seen = 0, last = 0;
  auto none = file_wanted(file.get(),
                          [&](std::uint64_t lba, std::uint64_t n) { return seen += n, last = lba, false; });
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_FALSE(*none);
  EXPECT_GE(seen, pieces);
  auto the_last = file_wanted(
      file.get(), [&](std::uint64_t lba, std::uint64_t n) { return lba <= last && last < lba + n; });
  ASSERT_TRUE(the_last) << the_last.error().message;
  EXPECT_TRUE(*the_last);
}

// A group of the intake log must not count as written because another part of its segment was.
TEST_F(FileOnDisk, OnlyThePartIsLookedAt) {
  constexpr std::uint64_t blocks = 64, first = 10, count = 3;
  const std::vector<std::byte> content(blocks * block_size, std::byte{1});
  ASSERT_EQ(::pwrite(file.get(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
  auto seen = [&](std::uint64_t offset, std::uint64_t bytes) {
    std::vector<std::uint64_t> out;
    EXPECT_FALSE(range_wanted(file.get(), offset, bytes, [&](std::uint64_t lba, std::uint64_t n) {
                   for (std::uint64_t i = 0; i < n; ++i) out.push_back(lba + i);
                   return false;
                 }).value());
    return out;
  };
  const std::vector<std::uint64_t> all = seen(0, blocks * block_size);
  ASSERT_EQ(all.size(), blocks);
  EXPECT_EQ(seen(first * block_size, count * block_size),
            (std::vector<std::uint64_t>(all.begin() + first, all.begin() + first + count)));
}

TEST_F(FileOnDisk, WithoutContentNothingIsWanted) {
  auto all = [](std::uint64_t, std::uint64_t) { return true; };
  EXPECT_EQ(file_wanted(file.get(), all).value(), false);
  ASSERT_EQ(::ftruncate(file.get(), 1 << 20), 0);
  EXPECT_EQ(file_wanted(file.get(), all).value(), false) << "a hole";
}

TEST_F(FileOnDisk, AFileSystemThatDoesNotTellIsAnError) {
  Fd elsewhere(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  auto refused = file_wanted(elsewhere.get(), [](std::uint64_t, std::uint64_t) { return true; });
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("does not report the blocks"), std::string::npos);
}

}  // namespace
}  // namespace twinloft::repl::snapshot
