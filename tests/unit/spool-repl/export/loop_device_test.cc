#include "twinloft/spool-repl/export/loop_device.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

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
    if (!loop.device.empty()) abandon_loop(loop);
    std::filesystem::remove_all(where);
  }
  std::vector<std::string> devices() const {
    std::vector<std::string> names;
    for (const auto& one : loops_of(file)) names.push_back(one.device);
    return names;
  }
  std::string where, file;
  LoopIdentity loop;
};

TEST_F(LoopDevice, is_attached_measured_and_detached) {
  ASSERT_EQ(geteuid(), 0u) << "needs root";
  auto attached = attach_loop(file, {.block_bytes = 4096, .direct_io = false});
  ASSERT_TRUE(attached) << attached.error().message;
  loop = *attached;
  EXPECT_FALSE(attached->held);
  EXPECT_EQ(devices(), std::vector<std::string>{loop.device});
  Fd fd(open(loop.device.c_str(), O_RDONLY | O_CLOEXEC | O_EXCL));
  ASSERT_TRUE(fd);
  int sector = 0;
  ASSERT_EQ(ioctl(fd.get(), BLKSSZGET, &sector), 0);
  EXPECT_EQ(sector, 4096);

  auto busy = detach_loop(loop);
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, Errc::unavailable);
  EXPECT_EQ(loops_of(file).size(), 1u);

  fd.reset();
  auto detached = detach_loop(loop);
  EXPECT_TRUE(detached) << detached.error().message;
  EXPECT_TRUE(loops_of(file).empty());
}

TEST_F(LoopDevice, autoclear_ends_with_the_last_that_holds_it) {
  ASSERT_EQ(geteuid(), 0u) << "needs root";
  auto attached = attach_loop(file, {.block_bytes = 4096, .direct_io = false, .autoclear = true});
  ASSERT_TRUE(attached) << attached.error().message;
  loop = *attached;
  Fd user(open(loop.device.c_str(), O_RDONLY | O_CLOEXEC | O_EXCL));
  ASSERT_TRUE(user);
  attached->held.reset();
  EXPECT_EQ(devices(), std::vector<std::string>{loop.device}) << "as long as the device is open";
  user.reset();
  EXPECT_TRUE(await_cleared(loop)) << "the detach waits for a program that briefly opens the device";
  EXPECT_TRUE(loops_of(file).empty());
}

std::filesystem::path write_cache_of(const LoopIdentity& loop) {
  return std::filesystem::path("/sys/block") / std::filesystem::path(loop.device).filename() /
         "queue/write_cache";
}

// Otherwise the kernel would answer the flushes of the next file system by itself.
TEST_F(LoopDevice, a_setting_of_the_numbers_last_user_does_not_stop_flushes) {
  ASSERT_EQ(geteuid(), 0u) << "needs root";
  auto before = attach_loop(file, {.block_bytes = 4096, .direct_io = false});
  ASSERT_TRUE(before) << before.error().message;
  loop = *before;
  std::ofstream(write_cache_of(loop)) << "write through";
  ASSERT_TRUE(detach_loop(loop));
  // As losetup would attach it.
  Fd fd(open(loop.device.c_str(), O_RDWR | O_CLOEXEC)), backing(open(file.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(ioctl(fd.get(), LOOP_SET_FD, backing.get()), 0) << "another program took the number";
  fd.reset();
  std::string setting;
  std::getline(std::ifstream(write_cache_of(loop)), setting);
  EXPECT_EQ(setting, "write through") << "the kernel forgets the setting: then this test shows nothing";
  ASSERT_TRUE(detach_loop(loops_of(file).at(0)));

  auto now = attach_loop(file, {.block_bytes = 4096, .direct_io = false});
  ASSERT_TRUE(now) << now.error().message;
  EXPECT_EQ(now->device, loop.device) << "another program took the number";
  loop = *now;
  std::getline(std::ifstream(write_cache_of(loop)), setting);
  EXPECT_EQ(setting, "write back");
}

TEST_F(LoopDevice, missing_backing_file_is_named) {
  ASSERT_EQ(geteuid(), 0u) << "needs root";
  auto attached = attach_loop(where + "/missing", {});
  ASSERT_FALSE(attached);
  EXPECT_EQ(attached.error().sys, ENOENT);
  EXPECT_NE(attached.error().message.find("/missing"), std::string::npos);
}

TEST_F(LoopDevice, detaching_what_is_not_there_is_no_error) {
  EXPECT_TRUE(detach_loop({where + "/no-device", 0, file}));
}

// The next attached file gets the device number.
TEST_F(LoopDevice, another_file_under_the_same_number_is_left_alone) {
  ASSERT_EQ(geteuid(), 0u) << "needs root";
  auto ours = attach_loop(file, {.block_bytes = 4096, .direct_io = false});
  ASSERT_TRUE(ours) << ours.error().message;
  EXPECT_NE(ours->sequence, 0u);
  EXPECT_TRUE(is_attached(*ours));
  for (bool sequence_known : {true, false}) {
    // Another program attached a file with another name, under the number of this device.
    loop = *ours;
    if (!sequence_known) loop.sequence = 0;
    ASSERT_TRUE(detach_loop(*ours));
    std::filesystem::copy_file(file, where + "/foreign", std::filesystem::copy_options::overwrite_existing);
    Fd fd(open(ours->device.c_str(), O_RDWR | O_CLOEXEC)),
        backing(open((where + "/foreign").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(ioctl(fd.get(), LOOP_SET_FD, backing.get()), 0) << "another program took the number";
    fd.reset();
    LoopIdentity foreign = loops_of(where + "/foreign").at(0);
    EXPECT_FALSE(is_attached(loop));
    EXPECT_TRUE(detach_loop(loop)) << "the device is detached";
    EXPECT_TRUE(await_cleared(loop));
    abandon_loop(loop);
    EXPECT_TRUE(is_attached(foreign)) << "another program's device was detached";
    ASSERT_TRUE(detach_loop(foreign));
    auto again = attach_loop(file, {.block_bytes = 4096, .direct_io = false});
    ASSERT_TRUE(again);
    *ours = std::move(*again);
  }
  loop = *ours;
}

// The same path may name another file in another mount namespace, or be covered.
TEST_F(LoopDevice, the_file_system_of_the_backing_file_is_compared) {
  ASSERT_EQ(geteuid(), 0u) << "needs root";
  struct stat st{};
  ASSERT_EQ(stat(file.c_str(), &st), 0);
  auto refused = attach_loop(file, {.direct_io = false, .backing_device = st.st_dev + 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::conflict);
  auto attached = attach_loop(file, {.direct_io = false, .backing_device = st.st_dev});
  ASSERT_TRUE(attached) << attached.error().message;
  loop = *attached;
  EXPECT_TRUE(is_on(loop, st.st_dev));
  EXPECT_FALSE(is_on(loop, st.st_dev + 1));
}

TEST_F(LoopDevice, symlink_is_published_replaced_and_withdrawn) {
  std::string link = where + "/link";
  ASSERT_TRUE(publish_symlink("/dev/loop1", link));
  ASSERT_TRUE(publish_symlink("/dev/loop2", link));
  EXPECT_EQ(std::filesystem::read_symlink(link), "/dev/loop2");
  withdraw_symlink("/dev/loop1", link);  // the link leads elsewhere by now
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  withdraw_symlink("/dev/loop2", link);
  EXPECT_FALSE(std::filesystem::is_symlink(link));
}

TEST_F(LoopDevice, only_links_to_devices_of_ours_are_replaced_or_removed) {
  std::string link = where + "/link";
  for (const char* target : {"/dev/sda", "/dev/loop", "/dev/loop1p1", "/dev/loop-control", "elsewhere"}) {
    std::filesystem::create_symlink(target, link);
    auto refused = publish_symlink("/dev/loop1", link);
    ASSERT_FALSE(refused) << target;
    EXPECT_NE(refused.error().message.find(target), std::string::npos);
    EXPECT_FALSE(remove_stale_symlink(link)) << target;
    EXPECT_EQ(std::filesystem::read_symlink(link), target);
    std::filesystem::remove(link);
  }
  EXPECT_FALSE(remove_stale_symlink(link));
  EXPECT_FALSE(remove_stale_symlink(file));
  for (const char* target : {"/dev/loop7", "/dev/ublkb0"}) {
    std::filesystem::create_symlink(target, link);
    EXPECT_TRUE(remove_stale_symlink(link)) << target;
    EXPECT_FALSE(std::filesystem::is_symlink(std::filesystem::symlink_status(link)));
  }
}

TEST_F(LoopDevice, symlink_replaces_nothing_but_symlinks) {
  auto refused = publish_symlink("/dev/loop1", file);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::conflict);
  EXPECT_TRUE(std::filesystem::is_regular_file(file));
}

}  // namespace
}  // namespace twinloft::repl::exports
