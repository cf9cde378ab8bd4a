// Real file systems: what a sync says after a failure, and what the rule for data first says. Needs root, and
// loop devices.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "../support/fixture.h"
#include "../support/loop_mount.h"
#include "twinloft/base/durable.h"
#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/spool/data_first.h"

namespace twinloft::lmtpd {
namespace {

// XFS_IOC_GOINGDOWN (xfs_fs.h), EXT4_IOC_SHUTDOWN (ext4.h), and their flag to write nothing of the journal.
constexpr unsigned long going_down = _IOR('X', 125, std::uint32_t);
constexpr std::uint32_t without_journal = 2;

class RealFileSystemTest : public test::DirTest {};

// XFS answers fsync of the directory with 0. So the name would be lost after a 250.
TEST_F(RealFileSystemTest, ASyncOfANameIsAnError) {
  ASSERT_TRUE(test::is_root());
  for (const char* type : {"ext4", "xfs"}) {
    test::LoopMount mount(path(type), type, 320);
    Fd directory(::open(mount.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(sync_durably(directory.get()));
    Fd file(::openat(directory.get(), "name", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(file) << type;
    file.reset();
    std::uint32_t how = without_journal;
    ASSERT_EQ(::ioctl(directory.get(), going_down, &how), 0) << type;
    for (int time = 0; time < 3; ++time) EXPECT_FALSE(sync_durably(directory.get())) << type << " " << time;
    EXPECT_FALSE(sync_file_system_durably(directory.get())) << type;
  }
}

// Else every message would be synced by itself until the next change of the machine's mounts.
TEST_F(RealFileSystemTest, AnAnswerThatCouldNotBeReadIsNotKept) {
  ASSERT_TRUE(test::is_root());
  test::LoopMount mount(path("xfs"), "xfs", 320);
  struct stat about{};
  ASSERT_EQ(::stat(mount.path().c_str(), &about), 0);
  const SpoolHandle handle{Fd(), 0, about.st_dev};
  const DataFirstRule rule = data_first_by_kernel();
  EXPECT_TRUE(rule(handle));
  mount_tmpfs(path("other"));  // so the kernel is asked again
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit no_descriptor{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &no_descriptor), 0);
  const bool without_descriptor = rule(handle);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(without_descriptor);
  EXPECT_TRUE(rule(handle));
}

}  // namespace
}  // namespace twinloft::lmtpd
