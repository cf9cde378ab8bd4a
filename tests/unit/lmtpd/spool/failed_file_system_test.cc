// What a sync says of a file system that has failed. Needs root, and loop devices.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>

#include "../support/fixture.h"
#include "../support/loop_mount.h"
#include "twinloft/base/durable.h"
#include "twinloft/base/fd.h"

namespace twinloft::lmtpd {
namespace {

// XFS_IOC_GOINGDOWN (xfs_fs.h), EXT4_IOC_SHUTDOWN (ext4.h), and their flag to write nothing of the journal.
constexpr unsigned long going_down = _IOR('X', 125, std::uint32_t);
constexpr std::uint32_t without_journal = 2;

class FailedFileSystemTest : public test::DirTest {};

// XFS answers fsync of the directory with 0. So the name would be lost after a 250.
TEST_F(FailedFileSystemTest, ASyncOfANameIsAnError) {
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

}  // namespace
}  // namespace twinloft::lmtpd
