// A start where recovery has loaded committed content into the arena instead of writing it home.
#include <gtest/gtest.h>

#include "shell.h"

namespace twinloft::repl::core {
namespace {

using Bytes = std::vector<std::byte>;

class LoadTest : public testing::Test {
 protected:
  explicit LoadTest(std::size_t room = 64) : shell(options_with(room)) {}
  static ShellOptions options_with(std::size_t room) {
    ShellOptions options;
    options.role = Role::primary;
    options.config = alone();
    options.arena_extra_blocks = room;
    return options;
  }
  void write(std::uint64_t lba, std::uint32_t blocks, int value) {
    Bytes content(std::size_t{blocks} * block_size, std::byte(value));
    finish(shell.submit(ClientOp::write, lba * block_size, static_cast<std::uint32_t>(content.size()),
                        content.data()));
    flush();
  }
  void trim(std::uint64_t lba, std::uint32_t blocks) {
    finish(shell.submit(ClientOp::trim, lba * block_size, blocks * static_cast<std::uint32_t>(block_size)));
    flush();
  }
  void flush() { finish(shell.submit(ClientOp::flush)); }
  void finish(std::uint64_t id) {
    while (shell.complete_one()) {
    }
    ASSERT_TRUE(shell.is_done(id));
    ASSERT_EQ(shell.done.at(id), 0);
  }
  int read(std::uint64_t lba) {
    Bytes back(block_size);
    finish(shell.submit(ClientOp::read, lba * block_size, block_size, back.data()));
    return std::to_integer<int>(back[0]);
  }
  int at_home(std::uint64_t lba) const { return std::to_integer<int>(shell.data[lba * block_size]); }
  void hold_home(bool held) {
    shell.held = [held](Disk kind) { return held && (kind == Disk::home_write || kind == Disk::home_zero); };
  }
  Shell shell;
};

TEST_F(LoadTest, WhatIsNotHomeIsReadFromMemoryAndBroughtHomeThen) {
  hold_home(true);
  write(3, 4, 1);
  write(4, 1, 2);
  write(10, 3, 3);
  trim(11, 1);
  shell.restart();
  EXPECT_EQ(at_home(3), 0);
  EXPECT_EQ((std::vector{read(3), read(4), read(5), read(10), read(11), read(12)}),
            (std::vector{1, 2, 1, 3, 0, 3}));
  EXPECT_EQ(shell.core->status().dirty_blocks, 6u);
  hold_home(false);
  shell.step(CheckpointNow{});
  shell.settle();
  EXPECT_EQ((std::vector{at_home(3), at_home(4), at_home(5), at_home(10), at_home(11), at_home(12)}),
            (std::vector{1, 2, 1, 3, 0, 3}));
  EXPECT_EQ(shell.arena.used(), 0u);
  EXPECT_EQ(shell.core->status().journal_used, 0u);
  EXPECT_TRUE(shell.core->settled());
}

// The newest content is zeros, over older content in the data area.
TEST_F(LoadTest, ZerosThatAreNotHomeAreReadAsZeros) {
  write(20, 3, 7);
  shell.step(CheckpointNow{});
  shell.settle();
  ASSERT_EQ(at_home(21), 7);
  hold_home(true);
  trim(21, 1);
  shell.restart();
  EXPECT_EQ(at_home(21), 7);
  EXPECT_EQ((std::vector{read(20), read(21), read(22)}), (std::vector{7, 0, 7}));
  hold_home(false);
  shell.settle();
  EXPECT_EQ(at_home(21), 0);
}

TEST_F(LoadTest, AnotherCrashBeforeItIsHomeLosesNothing) {
  hold_home(true);
  write(3, 4, 1);
  shell.restart();
  hold_home(true);
  write(4, 1, 2);
  shell.restart();
  EXPECT_EQ((std::vector{read(3), read(4), read(5)}), (std::vector{1, 2, 1}));
  EXPECT_EQ(shell.core->status().tail, Lsn{0}) << "the records stay until a checkpoint";
}

// Newer content that does not fit into memory is not lost.
TEST_F(LoadTest, WhatDoesNotFitIsHome) {
  hold_home(true);
  for (int i = 0; i < 10; ++i)
    write(10 * static_cast<std::uint64_t>(i), 9, i + 1);  // ten times 9 blocks, with room for 64
  shell.restart();
  std::vector<int> found, wanted, home;
  for (int i = 0; i < 10; ++i) {
    found.push_back(read(10 * static_cast<std::uint64_t>(i)));
    home.push_back(at_home(10 * static_cast<std::uint64_t>(i)));
    wanted.push_back(i + 1);
  }
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(home, (std::vector{1, 2, 3, 0, 0, 0, 0, 0, 0, 0}))
      << "as many of the newest as fit are in memory";
  hold_home(false);
  shell.step(CheckpointNow{});
  shell.settle();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(at_home(10 * static_cast<std::uint64_t>(i)), i + 1);
  EXPECT_EQ(shell.arena.used(), 0u);
}

TEST_F(LoadTest, AQuarterOfTheArenaStaysFreeAndWhatTheCoreNeeds) {
  std::size_t least = arena_blocks_min(alone());
  EXPECT_EQ(recovery_blocks(alone(), least - 1), 0u);
  EXPECT_EQ(recovery_blocks(alone(), least + 64), 64u);
  EXPECT_EQ(recovery_blocks(alone(), 8 * least), 6 * least);
}

class NoRoomTest : public LoadTest {
 protected:
  NoRoomTest() : LoadTest(0) {}
};

TEST_F(NoRoomTest, AllIsHomeWhereTheArenaIsAsSmallAsItMayBe) {
  hold_home(true);
  write(3, 4, 1);
  write(20, 1, 2);  // says that the first record is committed, but not whether it is committed itself
  shell.restart();
  EXPECT_EQ(at_home(3), 1);
  EXPECT_EQ(at_home(20), 0);
  EXPECT_EQ(read(20), 2);
  EXPECT_EQ(shell.core->status().dirty_blocks, 1u);
}

}  // namespace
}  // namespace twinloft::repl::core
