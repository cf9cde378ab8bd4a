#include "twinloft/lmtpd/intake/mount_instance.h"

#include <sys/stat.h>

#include <fstream>

#include "../support/fixture.h"
#include "../support/loop_mount.h"

namespace twinloft::lmtpd {
namespace {

namespace fs = std::filesystem;

std::uint64_t device_of(const std::string& path) {
  struct stat found{};
  EXPECT_EQ(::stat(path.c_str(), &found), 0);
  return found.st_dev;
}

class MountInstanceTest : public test::DirTest {
 protected:
  void write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name)) << text;
  }
  // sysfs and procfs of a machine with a file system on sda1.
  void make_machine() {
    write("proc/sys/kernel/random/boot_id", "2a64ab35-4699-4b8c-8bd4-683fee16b378\n");
    write("sys/devices/sda/diskseq", "7\n");
    fs::create_directories(path("sys/devices/sda/sda1"));
    fs::create_directories(path("sys/dev/block"));
    fs::create_directory_symlink("../../devices/sda/sda1", path("sys/dev/block/8:1"));
    fs::create_directories(path("sys/fs/xfs/sda1"));
  }
  Result<MountInstance> find() { return find_mount_instance(0x801, path("sys"), path("proc")); }
};

TEST_F(MountInstanceTest, ARemountIsAnotherInstance) {
  ASSERT_TRUE(test::is_root());
  for (const char* type : {"ext4", "xfs"}) {
    test::LoopMount mount(path(type), type, 320);
    const std::uint64_t device = device_of(mount.path());
    auto first = find_mount_instance(device);
    ASSERT_TRUE(first.has_value()) << first.error().message;
    EXPECT_EQ(find_mount_instance(device).value(), *first);
    ASSERT_TRUE(mount.unmount());
    EXPECT_FALSE(find_mount_instance(device).has_value());
    mount.mount();
    EXPECT_NE(find_mount_instance(device_of(mount.path())).value(), *first);
  }
}

TEST_F(MountInstanceTest, APartitionHasTheNumberOfItsDisk) {
  make_machine();
  auto found = find();
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->diskseq, 7u);
  EXPECT_EQ(found->boot_id.text(), "2a64ab35-4699-4b8c-8bd4-683fee16b378");
  EXPECT_NE(found->sysfs_inode, 0u);
}

TEST_F(MountInstanceTest, EachPartCounts) {
  make_machine();
  MountInstance before = find().value();
  write("sys/devices/sda/diskseq", "8\n");
  MountInstance disk = find().value();
  EXPECT_NE(disk, before);
  write("proc/sys/kernel/random/boot_id", "2a64ab35-4699-4b8c-8bd4-683fee16b379\n");
  MountInstance boot = find().value();
  EXPECT_NE(boot, disk);
  fs::create_directories(path("sys/fs/xfs/new"));
  fs::rename(path("sys/fs/xfs/sda1"), path("sys/fs/xfs/old"));
  fs::rename(path("sys/fs/xfs/new"), path("sys/fs/xfs/sda1"));
  EXPECT_NE(find().value(), boot);
}

TEST_F(MountInstanceTest, WhatIsNotShownIsAnError) {
  for (const char* missing : {"sys/fs/xfs/sda1", "sys/devices/sda/diskseq", "sys/dev/block/8:1", "proc"}) {
    make_machine();
    fs::remove_all(path(missing));
    EXPECT_FALSE(find().has_value()) << missing;
    fs::remove_all(path("sys"));
  }
  make_machine();
  for (const char* wrong : {"", "\n", "7x\n"}) {
    write("sys/devices/sda/diskseq", wrong);
    EXPECT_FALSE(find().has_value()) << wrong;
  }
}

}  // namespace
}  // namespace twinloft::lmtpd
