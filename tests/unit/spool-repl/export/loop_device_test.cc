#include "twinloft/spool-repl/export/loop_device.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "twinloft/base/fd.h"

namespace twinloft::repl::exports {
namespace {

class LoopDevice : public testing::Test {
 protected:
  LoopDevice() {
    const char* dir = std::getenv("TMPDIR");
    where = std::string(dir ? dir : "/tmp") + "/tl-loop-XXXXXX";
    EXPECT_NE(mkdtemp(where.data()), nullptr);
    file = where + "/backing";
    Fd fd(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(ftruncate(fd.get(), 1 << 20), 0);
  }
  ~LoopDevice() override {
    if (!device.empty()) abandon_loop(device);
    std::filesystem::remove_all(where);
  }
  std::string where, file, device;
};

TEST_F(LoopDevice, is_attached_measured_and_detached) {
  ASSERT_EQ(geteuid(), 0u) << "needs root";
  auto attached = attach_loop(file, {.block_bytes = 4096, .direct_io = false});
  ASSERT_TRUE(attached) << attached.error().message;
  device = attached->device;
  EXPECT_FALSE(attached->held);
  EXPECT_EQ(loops_of(file), std::vector<std::string>{device});
  Fd fd(open(device.c_str(), O_RDONLY | O_CLOEXEC | O_EXCL));
  ASSERT_TRUE(fd);
  int sector = 0;
  ASSERT_EQ(ioctl(fd.get(), BLKSSZGET, &sector), 0);
  EXPECT_EQ(sector, 4096);

  auto busy = detach_loop(device);
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, Errc::unavailable);
  EXPECT_EQ(loops_of(file).size(), 1u);

  fd.reset();
  auto detached = detach_loop(device);
  EXPECT_TRUE(detached) << detached.error().message;
  EXPECT_TRUE(loops_of(file).empty());
}

TEST_F(LoopDevice, autoclear_ends_with_the_last_that_holds_it) {
  ASSERT_EQ(geteuid(), 0u) << "needs root";
  auto attached = attach_loop(file, {.block_bytes = 4096, .direct_io = false, .autoclear = true});
  ASSERT_TRUE(attached) << attached.error().message;
  device = attached->device;
  Fd user(open(device.c_str(), O_RDONLY | O_CLOEXEC | O_EXCL));
  ASSERT_TRUE(user);
  attached->held.reset();
  EXPECT_EQ(loops_of(file), std::vector<std::string>{device}) << "as long as somebody has it";
  user.reset();
  EXPECT_TRUE(await_cleared(device, file)) << "whoever looks at the device just now is waited for";
  EXPECT_TRUE(loops_of(file).empty());
}

TEST_F(LoopDevice, missing_backing_file_is_named) {
  ASSERT_EQ(geteuid(), 0u) << "needs root";
  auto attached = attach_loop(where + "/missing", {});
  ASSERT_FALSE(attached);
  EXPECT_EQ(attached.error().sys, ENOENT);
  EXPECT_NE(attached.error().message.find("/missing"), std::string::npos);
}

TEST_F(LoopDevice, detaching_what_is_not_there_is_no_error) { EXPECT_TRUE(detach_loop(where + "/no-device")); }

TEST_F(LoopDevice, symlink_is_published_replaced_and_withdrawn) {
  std::string link = where + "/link";
  ASSERT_TRUE(publish_symlink("/dev/one", link));
  ASSERT_TRUE(publish_symlink("/dev/two", link));
  EXPECT_EQ(std::filesystem::read_symlink(link), "/dev/two");
  withdraw_symlink("/dev/one", link);  // not ours any more
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  withdraw_symlink("/dev/two", link);
  EXPECT_FALSE(std::filesystem::is_symlink(link));
}

TEST_F(LoopDevice, symlink_replaces_nothing_but_symlinks) {
  auto refused = publish_symlink("/dev/one", file);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::conflict);
  EXPECT_TRUE(std::filesystem::is_regular_file(file));
}

}  // namespace
}  // namespace twinloft::repl::exports
