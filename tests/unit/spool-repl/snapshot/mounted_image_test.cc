// Needs root, FUSE, loop devices and mkfs.ext4. The kill in the middle, and XFS, are in tests/e2e/salvage.
#include "twinloft/spool-repl/snapshot/mounted_image.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../support/memory_file.h"
#include "twinloft/spool-repl/export/loop_device.h"

namespace twinloft::repl::snapshot {
namespace {

constexpr std::uint64_t blocks = 4096;

int run(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  int status = -1;
  if (::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ) != 0) return -1;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

class MountedImageTest : public testing::Test {
 protected:
  MountedImageTest() : data(std::vector<std::byte>(blocks * block_size)), image(data, blocks, {}) {
    const char* tmp = std::getenv("TMPDIR");
    directory = tmp ? tmp : "/var/tmp";
  }
  void SetUp() override {
    ASSERT_TRUE(::geteuid() == 0 && ::access("/dev/fuse", R_OK | W_OK) == 0) << "needs root and FUSE";
  }
  // A namespace belongs to a thread: the test's own one keeps its mounts.
  template <class F>
  void mounted(F with) {
    std::thread([&] { with(MountedImage::mount(image, directory)); }).join();
  }
  void make_ext4() {
    std::string file = directory + "/tl-image-XXXXXX";
    Fd fd(::mkostemp(file.data(), O_CLOEXEC));
    ASSERT_TRUE(fd);
    ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(data.bytes.size())), 0);
    EXPECT_EQ(run({"mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0", file}), 0);
    EXPECT_EQ(::pread(fd.get(), data.bytes.data(), data.bytes.size(), 0), static_cast<ssize_t>(data.bytes.size()));
    ::unlink(file.c_str());
  }
  void expect_refused(std::string_view words) {
    mounted([&](auto m) {
      ASSERT_FALSE(m);
      EXPECT_NE(m.error().message.find(words), std::string::npos) << m.error().message;
    });
    EXPECT_TRUE(exports::loops_of("/sys/fs/fuse/connections/volume").empty());
  }

  MemoryFile data;
  journal::Image image;
  std::string directory;
};

TEST_F(MountedImageTest, AFileSystemIsReadAndTheImageStaysAsItIs) {
  ASSERT_NO_FATAL_FAILURE(make_ext4());
  std::vector<std::byte> before = data.bytes;
  mounted([&](auto m) {
    ASSERT_TRUE(m) << m.error().message;
    EXPECT_EQ((*m)->type(), "ext4");
    Fd found(::openat((*m)->root(), "lost+found", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_TRUE(found);
    EXPECT_LT(::openat((*m)->root(), "new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600), 0);
    EXPECT_EQ(errno, EROFS);
    EXPECT_FALSE((*m)->target().failure());
  });
  EXPECT_EQ(data.bytes == before, true);
  EXPECT_EQ(data.writes, 0u);
  EXPECT_TRUE(exports::loops_of("/sys/fs/fuse/connections/volume").empty());
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) EXPECT_EQ(line.find("/sys/fs/fuse/connections/"), std::string::npos) << line;
}

TEST_F(MountedImageTest, WhatIsNoFileSystemIsRefusedInWords) {
  expect_refused("holds no file system that is known");
  // A partition table: one entry, of type Linux, from sector 2048 on.
  const unsigned char entry[16] = {0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x40, 0, 0};
  std::memcpy(data.bytes.data() + 446, entry, sizeof entry);
  data.bytes[510] = std::byte{0x55};
  data.bytes[511] = std::byte{0xaa};
  expect_refused("holds a partition table (dos)");
}

TEST_F(MountedImageTest, AnUnreadableImageIsNamedAsTheCause) {
  ASSERT_NO_FATAL_FAILURE(make_ext4());
  data.fails = [](std::uint64_t offset, std::uint64_t, bool) { return offset > 0; };
  expect_refused("reading at");
}

}  // namespace
}  // namespace twinloft::repl::snapshot
