// Needs root, FUSE, loop devices, mkfs.ext4 and mkfs.xfs. tests/e2e/salvage kills the process in the middle.
#include "twinloft/spool-repl/snapshot/mounted_image.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "../support/memory_file.h"
#include "twinloft/spool-repl/export/loop_device.h"

namespace twinloft::repl::snapshot {
namespace {

constexpr std::uint64_t image_blocks = 16384;

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

// A file of the image's size and a directory, both removed with the object.
struct Scratch {
  explicit Scratch(const std::string& parent) : directory(parent + "/tl-image-XXXXXX") {
    if (!::mkdtemp(directory.data())) throw std::runtime_error(directory + " cannot be made");
    file = directory + "/image", mount_point = directory + "/root";
    std::filesystem::create_directory(mount_point);
    std::ofstream(file).close();
    std::filesystem::resize_file(file, image_blocks * block_size);
  }
  ~Scratch() { std::filesystem::remove_all(directory); }
  std::vector<std::byte> content() const {
    auto text = read_file(file, image_blocks * block_size);
    auto bytes = std::as_bytes(std::span(text.value()));
    return {bytes.begin(), bytes.end()};
  }
  std::string directory, file, mount_point;
};

// Runs in a new mount namespace whose mounts are shared with namespaces made from it.
template <class F>
void in_shared_mounts(F act) {
  std::thread([&] {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_SHARED, nullptr), 0);
    act();
  }).join();
}

// In the namespace of the calling thread.
bool mount_is_there(const std::string& path) {
  std::ifstream mounts("/proc/thread-self/mounts");
  for (std::string line; std::getline(mounts, line);)
    if (line.find(" " + path + " ") != std::string::npos) return true;
  return false;
}

class MountedImageTest : public testing::Test {
 protected:
  MountedImageTest()
      : data(std::vector<std::byte>(image_blocks * block_size)),
        image(data, HomeMap::identity(image_blocks), {}) {
    const char* tmp = std::getenv("TMPDIR");
    directory = tmp ? tmp : "/var/tmp";
  }
  void SetUp() override {
    ASSERT_TRUE(::geteuid() == 0 && ::access("/dev/fuse", R_OK | W_OK) == 0) << "needs root and FUSE";
  }
  // A mount namespace belongs to a thread, so the test's own thread keeps its mounts.
  template <class F>
  void mounted(F with) {
    std::thread([&] { with(MountedImage::mount(image, directory)); }).join();
  }
  void make_ext4() {
    Scratch scratch(directory);
    EXPECT_EQ(run({"mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0", scratch.file}), 0);
    data.bytes = scratch.content();
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
  for (std::string line; std::getline(mounts, line);)
    EXPECT_EQ(line.find("/sys/fs/fuse/connections/"), std::string::npos) << line;
}

TEST_F(MountedImageTest, WhatIsNoFileSystemIsRefusedInWords) {
  expect_refused("has no known file system");
  // A partition table with one entry, of type Linux, from sector 2048 on.
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

TEST_F(MountedImageTest, UnmountingElsewhereIsFollowedAndNothingIsSeenOutside) {
  ASSERT_NO_FATAL_FAILURE(make_ext4());
  Scratch scratch(directory);
  in_shared_mounts([&] {
    ASSERT_EQ(::mount("outside", scratch.mount_point.c_str(), "tmpfs", 0, "size=64k"), 0);
    std::promise<void> begun, unmounted;
    std::thread inside([&] {
      auto m = MountedImage::mount(image, directory);
      EXPECT_TRUE(m) << m.error().message;
      EXPECT_TRUE(mount_is_there("/sys/fs/fuse/connections/root"));
      EXPECT_TRUE(mount_is_there(scratch.mount_point));
      begun.set_value();
      unmounted.get_future().wait();
      EXPECT_FALSE(mount_is_there(scratch.mount_point));
      EXPECT_TRUE(mount_is_there("/sys/fs/fuse/connections/root"));
    });
    begun.get_future().wait();
    EXPECT_FALSE(mount_is_there("/sys/fs/fuse/connections/root"));
    EXPECT_FALSE(mount_is_there("/sys/fs/fuse/connections/volume"));
    EXPECT_EQ(::umount2(scratch.mount_point.c_str(), 0), 0);
    unmounted.set_value();
    inside.join();
  });
}

struct SmallBlocks {
  const char* type;
  std::vector<std::string> mkfs;
};

class SmallBlocksTest : public MountedImageTest, public testing::WithParamInterface<SmallBlocks> {
 protected:
  static std::string name(int i) { return "message-" + std::to_string(i); }
  static std::string text(int i) {
    return name(i) + std::string(700 + static_cast<std::size_t>(i) * 37, static_cast<char>('a' + i % 26));
  }
  // The disk while the file system is in use, as after a power cut.
  void write_and_cut(const std::string& device, const Scratch& scratch) {
    ASSERT_EQ(::mount(device.c_str(), scratch.mount_point.c_str(), GetParam().type, 0, nullptr), 0)
        << std::strerror(errno);
    for (int i = 0; i < files; ++i) {
      Fd fd(::open((scratch.mount_point + "/" + name(i)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
      const std::string content = text(i);
      EXPECT_TRUE(write_all(fd.get(), std::as_bytes(std::span(content))));
      EXPECT_EQ(::fsync(fd.get()), 0);
    }
    data.bytes = scratch.content();
    EXPECT_EQ(::umount2(scratch.mount_point.c_str(), 0), 0);
  }
  void make_and_cut() {
    Scratch scratch(directory);
    std::vector<std::string> mkfs = GetParam().mkfs;
    mkfs.push_back(scratch.file);
    ASSERT_EQ(run(mkfs), 0);
    exports::LoopOptions options;
    options.block_bytes = 512;
    options.direct_io = false;
    options.autoclear = true;
    auto loop = exports::attach_loop(scratch.file, options);
    ASSERT_TRUE(loop) << loop.error().message;
    write_and_cut(loop->device, scratch);
    loop->held.reset();
    EXPECT_TRUE(exports::await_cleared(*loop));
  }
  static constexpr int files = 40;
};

// The file system's recovery writes parts of blocks of 4 KiB. The rest of such a block must not change.
TEST_P(SmallBlocksTest, TheirFileSystemRecoversAndIsRead) {
  in_shared_mounts([&] { make_and_cut(); });
  ASSERT_FALSE(HasFatalFailure());
  std::vector<std::byte> before = data.bytes;
  mounted([&](auto m) {
    ASSERT_TRUE(m) << m.error().message;
    EXPECT_EQ((*m)->type(), GetParam().type);
    EXPECT_TRUE((*m)->target().changed(0, image_blocks)) << "nothing was recovered";
    for (int i = 0; i < files; ++i) {
      Fd fd(::openat((*m)->root(), name(i).c_str(), O_RDONLY | O_CLOEXEC));
      ASSERT_TRUE(fd) << name(i);
      std::string found(text(i).size() + 1, '\0');
      ASSERT_EQ(::read(fd.get(), found.data(), found.size()), static_cast<ssize_t>(text(i).size()));
      found.pop_back();
      EXPECT_EQ(found, text(i));
    }
    EXPECT_FALSE((*m)->target().failure());
  });
  EXPECT_EQ(data.bytes == before, true);
}

// mkfs.xfs refuses less than 300 MiB, except with these three variables of its developers' tests.
INSTANTIATE_TEST_SUITE_P(MountedImage, SmallBlocksTest,
                         testing::Values(SmallBlocks{"ext4", {"mkfs.ext4", "-q", "-F", "-b", "1024"}},
                                         SmallBlocks{
                                             "xfs",
                                             {"env", "TEST_DIR=/", "TEST_DEV=/", "QA_CHECK_FS=1", "mkfs.xfs",
                                              "-q", "-s", "size=512", "-b", "size=1024"}}),
                         [](const auto& p) { return p.param.type; });

}  // namespace
}  // namespace twinloft::repl::snapshot
