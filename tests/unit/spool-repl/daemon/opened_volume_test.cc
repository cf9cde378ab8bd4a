// Opens a volume on its own files. Needs direct I/O, but no privilege.
#include "opened_volume.h"

#include <gtest/gtest.h>

#include "volume_on_files.h"

namespace twinloft::repl::daemon {
namespace {

struct OpenedVolumeTest : testing::Test, VolumeOnFiles {
  Result<std::unique_ptr<OpenedVolume>> open() {
    TL_TRY_ASSIGN(Storage storage, open_storage(s));
    return OpenedVolume::open(s, std::move(storage), random,
                              [this](std::string kind, std::string, bool) { events.push_back(kind); });
  }
  OsRandom random;
  std::vector<std::string> events;
};

TEST_F(OpenedVolumeTest, ANewVolumeIsASecondary) {
  auto volume = open();
  ASSERT_TRUE(volume) << volume.error().message;
  EXPECT_EQ((*volume)->superblock.replica, 1u);
  EXPECT_EQ((*volume)->superblock.volume_blocks, s.size / block_size);
  EXPECT_FALSE((*volume)->was_primary) << "its log is empty";
  EXPECT_EQ((*volume)->core->status().role, core::Role::secondary);
  EXPECT_GE((*volume)->arena_memory.span().size(), s.arena / block_size * block_size);
}

TEST_F(OpenedVolumeTest, AnotherProcessCannotHaveItMeanwhile) {
  auto volume = open();
  ASSERT_TRUE(volume);
  auto again = open_storage(s);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::unavailable);
}

TEST_F(OpenedVolumeTest, AnArenaThatIsTooSmall) {
  s.arena = block_size;
  auto volume = open();
  ASSERT_FALSE(volume);
  EXPECT_EQ(volume.error().code, Errc::invalid);
  EXPECT_NE(volume.error().message.find("volume.mail.arena: 0 MiB is too small"), std::string::npos)
      << volume.error().message;
}

}  // namespace
}  // namespace twinloft::repl::daemon
