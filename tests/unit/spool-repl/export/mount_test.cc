#include "fuse/mount.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace twinloft::repl::fuse {
namespace {

constexpr std::string_view table =
    "24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "80 24 0:57 / /run/a\\040b/volume rw,nosuid - fuse.twinloft twinloft rw,user_id=0\n"
    "81 24 0:58 / /run/x rw,nosuid shared:3 master:1 - tmpfs tmpfs rw\n"
    "82 81 0:59 / /run/x rw - fuse twinloft rw\n"
    "broken line\n";

TEST(MountTable, finds_the_topmost_mount_of_exactly_that_path) {
  EXPECT_EQ(mounted_type(table, "/"), "ext4");
  EXPECT_EQ(mounted_type(table, "/run/a b/volume"), "fuse.twinloft");
  EXPECT_EQ(mounted_type(table, "/run/x"), "fuse");
  EXPECT_EQ(mounted_type(table, "/run"), std::nullopt);
  EXPECT_EQ(mounted_type(table, "line"), std::nullopt);
  EXPECT_EQ(mounted_type("", "/"), std::nullopt);
}

TEST(MountTable, names_the_devices_of_all_mounts_at_a_path) {
  auto all = mounts_at(table, "/run/x");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].device, makedev(0, 58));
  EXPECT_EQ(all[1].device, makedev(0, 59));
  EXPECT_TRUE(mounts_at("80 24 057 / /x rw - fuse x rw\n81 24 0:x / /x rw - fuse x rw\n", "/x").empty());
}

class MountPoint : public testing::Test {
 protected:
  MountPoint() {
    const char* dir = std::getenv("TMPDIR");
    where = std::string(dir ? dir : "/tmp") + "/tl-mount-XXXXXX";
    EXPECT_NE(mkdtemp(where.data()), nullptr);
  }
  ~MountPoint() override { std::filesystem::remove_all(where); }
  std::string where;
};

TEST_F(MountPoint, is_created_as_a_private_file_and_accepted_again) {
  ASSERT_TRUE(prepare_mount_point(where + "/volume"));
  struct stat st{};
  ASSERT_EQ(stat((where + "/volume").c_str(), &st), 0);
  EXPECT_TRUE(S_ISREG(st.st_mode));
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_TRUE(prepare_mount_point(where + "/volume"));
}

TEST_F(MountPoint, must_be_a_file_with_an_absolute_path) {
  auto directory = prepare_mount_point(where);
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, Errc::invalid);
  auto relative = prepare_mount_point("volume");
  ASSERT_FALSE(relative);
  EXPECT_EQ(relative.error().code, Errc::invalid);
  auto orphan = prepare_mount_point(where + "/missing/volume");
  ASSERT_FALSE(orphan);
  EXPECT_EQ(orphan.error().sys, ENOENT);
}

TEST_F(MountPoint, another_mount_at_the_same_path_stays) {
  struct stat st{};
  ASSERT_EQ(stat("/proc", &st), 0);
  EXPECT_TRUE(unmount_own("/proc", st.st_dev + 1)) << "a missing mount counts as unmounted";
  abort_mount("/proc", st.st_dev + 1, false);
  ASSERT_TRUE(topmost_mount("/proc"));
  EXPECT_EQ((*topmost_mount("/proc"))->device, st.st_dev);
}

TEST_F(MountPoint, what_is_mounted_already_is_left_alone) {
  auto taken = prepare_mount_point("/proc");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Errc::unavailable);
  EXPECT_FALSE(is_dead_mount("/proc"));
}

}  // namespace
}  // namespace twinloft::repl::fuse
