// `create` on devices and files that are not empty. The devices are loop devices, so root is needed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "contents.h"
#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/daemon/check.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "volume_on_files.h"

namespace twinloft::repl::daemon {
namespace {

struct CreateTest : testing::Test {
  void SetUp() override { ASSERT_EQ(::geteuid(), 0u) << "needs root"; }

  std::string device(const std::string& name, std::uint64_t bytes) {
    Fd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    Fd backing(::open((where + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(::ftruncate(backing.get(), static_cast<off_t>(bytes)), 0);
    for (int i = 0; i < 64; ++i) {
      std::string path = fmt::format("/dev/loop{}", ::ioctl(control.get(), LOOP_CTL_GET_FREE));
      Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
      loop_config config{};
      config.fd = static_cast<__u32>(backing.get());
      config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
      if (::ioctl(fd.get(), LOOP_CONFIGURE, &config) != 0) continue;
      devices.push_back(std::move(fd));
      return path;
    }
    ADD_FAILURE() << "no loop device";
    return "";
  }
  void put(const std::string& path, std::uint64_t at, std::string_view bytes) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(::fsync(fd.get()), 0);
  }
  void put_file(const std::string& path) { std::ofstream(path) << "precious"; }
  std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  // The superblock's fields that libblkid requires.
  void swap_signature(const std::string& path) {
    std::string page(4096, '\0');
    page[1024] = 1;       // version
    page[1028] = '\x7f';  // last page
    page.replace(4096 - 10, 10, "SWAPSPACE2");
    put(path, 0, page);
  }
  void partition_table(const std::string& path) {
    std::string sector(512, '\0');
    sector[446 + 4] = '\x83';  // type; starts at sector 2048, has 2048 sectors
    sector[446 + 9] = 8, sector[446 + 13] = 8;
    sector[510] = '\x55', sector[511] = '\xaa';
    put(path, 0, sector);
  }
  void luks_signature(const std::string& path) {
    std::string header(4096, '\0');
    header.replace(0, 8, std::string_view("LUKS\xba\xbe\0\1", 8));
    header.replace(168, 36, "0b7e0f3a-0000-4000-8000-00000000c0de");
    put(path, 0, header);
  }
  testing::AssertionResult refused(const Result<std::string>& made, std::string_view words) {
    if (made) return testing::AssertionFailure() << "created: " << *made;
    if (made.error().message.find(words) == std::string::npos)
      return testing::AssertionFailure() << made.error().message;
    return testing::AssertionSuccess();
  }

  TemporaryDirectory directory;
  const std::string& where = directory.path();
  std::vector<Fd> devices;  // autoclear: the last close detaches the device, before the directory is removed
  VolumeSettings s = small_volume(where);
};

TEST_F(CreateTest, AVolumeOfAnotherSize) {
  s.data = device("device", 64 * mib);
  ASSERT_TRUE(create_volume(s));
  s.size = 20 * mib;
  s.journal = where + "/another";
  auto again = create_volume(s);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("holds the data area of volume " + s.uuid +
                                       " replica 1. Nothing was changed"),
            std::string::npos)
      << again.error().message;
  EXPECT_FALSE(std::filesystem::exists(s.journal));
  EXPECT_TRUE(create_volume(s, {false, true}));
}

TEST_F(CreateTest, ADeviceThatIsTooSmallOrReadOnlyIsSaidBefore) {
  s.data = device("device", 8 * mib);
  Findings found = check_volume(s);
  ASSERT_EQ(found.errors.size(), 1u);
  EXPECT_NE(found.errors[0].find("has 8388608 bytes, and size says 16777216"), std::string::npos)
      << found.errors[0];
  s.size = 4 * mib;
  int on = 1, off = 0;
  ASSERT_EQ(::ioctl(devices.back().get(), BLKROSET, &on), 0);
  struct Writable {  // otherwise the next user of the device number would find it read-only
    int fd, *off;
    ~Writable() { (void)::ioctl(fd, BLKROSET, off); }
  } again{devices.back().get(), &off};
  auto made = create_volume(s, {false, true});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("read-only"), std::string::npos) << made.error().message;
  found = check_volume(s);
  ASSERT_EQ(found.errors.size(), 1u);
  EXPECT_NE(found.errors[0].find("read-only"), std::string::npos) << found.errors[0];
}

// The name that the file had when it was attached does not exist any more.
TEST_F(CreateTest, AFileThatALoopDeviceHasUnderAnotherName) {
  std::string loop = device("first", 16 * mib);
  std::filesystem::create_hard_link(where + "/first", s.data);
  std::filesystem::remove(where + "/first");
  s.size = 0;
  auto adopted = create_volume(s, {true, false});
  ASSERT_FALSE(adopted);
  EXPECT_NE(adopted.error().message.find("in use as " + loop), std::string::npos) << adopted.error().message;
  EXPECT_FALSE(std::filesystem::exists(s.journal));
}

TEST_F(CreateTest, WhatIsRecognisedOnTheDataDeviceIsRefused) {
  s.data = device("disk", 17 * mib);
  using Maker = void (CreateTest::*)(const std::string&);
  for (auto [make, words] : {std::pair<Maker, const char*>{&CreateTest::swap_signature, "swap"},
                             {&CreateTest::partition_table, "partition table"},
                             {&CreateTest::luks_signature, "crypto_LUKS"}}) {
    put(s.data, 0, std::string(8192, '\0'));
    (this->*make)(s.data);
    std::string before = content(s.data);
    auto made = create_volume(s);
    EXPECT_TRUE(refused(made, words));
    EXPECT_TRUE(refused(made, "--overwrite"));
    EXPECT_EQ(content(s.data), before) << words;
    EXPECT_FALSE(std::filesystem::exists(s.journal)) << "the created file is removed again";
    Findings found = check_volume(s);
    bool told = false;
    for (const auto& text : found.warnings) told |= text.find(words) != std::string::npos;
    EXPECT_TRUE(told) << words;
  }
}

TEST_F(CreateTest, TheJournalsDeviceIsLookedAtToo) {
  s.journal = device("disk", 32 * mib);
  swap_signature(s.journal);
  std::string before = content(s.journal);
  EXPECT_TRUE(refused(create_volume(s), "swap"));
  EXPECT_EQ(content(s.journal), before);
  EXPECT_FALSE(std::filesystem::exists(s.data));
  std::ofstream(s.data) << std::string(16 * mib, 'x');
  s.size = 0;
  EXPECT_TRUE(refused(create_volume(s, {.adopt = true}), "swap"));
  EXPECT_EQ(content(s.journal), before);
}

// A signature at the end would be found, and assembled, at the next boot.
TEST_F(CreateTest, OverwriteMeansItAndLeavesNoSignatureBehind) {
  s.data = device("disk", 64 * mib);
  swap_signature(s.data);
  std::string raid(256, '\0');  // md, version 1.0: near the end of the device
  raid.replace(0, 8, std::string_view("\xfc\x4e\x2b\xa9\1\0\0\0", 8));
  std::uint64_t at = (64 * mib / 512 - 16) & ~7ull;
  std::memcpy(raid.data() + 144, &at, 8);
  put(s.data, at * 512, raid);
  auto made = create_volume(s);
  EXPECT_TRUE(refused(made, "swap"));
  auto done = create_volume(s, {.overwrite = true});
  ASSERT_TRUE(done) << done.error().message;
  auto left = contents_of(s.data, s.size);
  ASSERT_TRUE(left) << left.error().message;
  EXPECT_EQ(*left, std::vector<std::string>{"the data area of volume " + s.uuid + " replica 1"});
}

TEST_F(CreateTest, AnotherVolumesPartsAreRefusedInEitherPlace) {
  s.data = device("disk", 17 * mib);
  s.journal = device("journal-disk", 32 * mib);
  ASSERT_TRUE(create_volume(s));
  EXPECT_TRUE(check_volume(s).errors.empty()) << "its own signature";
  EXPECT_TRUE(refused(create_volume(s), "the data area of volume " + s.uuid));
  EXPECT_TRUE(refused(create_volume(s), "the journal of volume " + s.uuid));
  std::swap(s.data, s.journal);
  EXPECT_TRUE(refused(create_volume(s), "the journal of volume"));
  EXPECT_TRUE(refused(create_volume(s), "the data area of volume"));
  s.size = 0;
  EXPECT_TRUE(refused(create_volume(s, {.adopt = true}), "the journal of volume"));
}

TEST_F(CreateTest, ADamagedJournalIsOneToo) {
  s.data = device("disk", 17 * mib);
  s.journal = device("journal-disk", 32 * mib);
  ASSERT_TRUE(create_volume(s));
  put(s.data, 0, std::string(17 * mib, '\0'));
  for (std::uint64_t at : superblock_offset) put(s.journal, at + 40, "damage");
  EXPECT_TRUE(refused(create_volume(s), "a journal of spool-repl"));
}

TEST_F(CreateTest, ADeviceInUseIsRefusedAlsoWithOverwrite) {
  s.data = device("disk", 17 * mib);
  Fd held(::open(s.data.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
  ASSERT_TRUE(held);
  EXPECT_TRUE(refused(create_volume(s, {.overwrite = true}), "in use"));
  held.reset();
  EXPECT_TRUE(create_volume(s));
}

// The device has two names.
TEST_F(CreateTest, OneDeviceIsNotBothDataAndJournal) {
  s.data = device("disk", 64 * mib);
  s.journal = where + "/alias";
  std::filesystem::create_symlink(s.data, s.journal);
  EXPECT_TRUE(refused(create_volume(s, {.overwrite = true}), "in use"));
}

TEST_F(CreateTest, AFileThatHoldsAnythingIsNeverTakenOver) {
  std::ofstream(s.data) << "precious";
  EXPECT_TRUE(refused(create_volume(s, {.overwrite = true}), "never overwrites"));
  EXPECT_EQ(content(s.data), "precious");
  std::filesystem::rename(s.data, s.journal);
  EXPECT_TRUE(refused(create_volume(s, {.overwrite = true}), "never overwrites"));
  EXPECT_EQ(content(s.journal), "precious");
  EXPECT_FALSE(std::filesystem::exists(s.data));
}

// After a boot, a device name may lead to another disk. A refusal must leave the data file empty for the next
// attempt.
TEST_F(CreateTest, ARefusalLeavesAnEmptyFileEmpty) {
  std::ofstream(s.data).close();
  s.journal = device("disk", 40 * mib);
  swap_signature(s.journal);
  EXPECT_TRUE(refused(create_volume(s), "swap"));
  EXPECT_EQ(std::filesystem::file_size(s.data), 0u)
      << "otherwise the next attempt would find a file with content";
}

TEST_F(CreateTest, PartsOfOursAreNotOfferedForAdoption) {
  s.data = device("data-disk", 17 * mib), s.journal = device("journal-disk", 40 * mib);
  ASSERT_TRUE(create_volume(s));
  auto again = create_volume(s);
  EXPECT_TRUE(refused(again, "the data area of volume"));
  EXPECT_FALSE(refused(again, "--adopt")) << "the adoption would be refused too";
  s.uuid = "5c1a0e7e-0000-4000-8000-00000000beef";
  s.journal = where + "/other-journal";
  for (const auto& text : check_volume(s).warnings) EXPECT_EQ(text.find("--adopt"), text.npos) << text;
}

TEST_F(CreateTest, CheckConfigTellsOfAFileThatIsNotOverwritten) {
  put_file(s.data);
  bool told = false;
  for (const auto& text : check_volume(s).warnings) told |= text.find("never overwrites a file") != text.npos;
  EXPECT_TRUE(told);
}

TEST_F(CreateTest, CheckConfigWarnsOfNamesThatMayMeanAnotherDisk) {
  s.data = device("disk", 17 * mib);
  auto warned = [&] {
    for (const auto& text : check_volume(s).warnings)
      if (text.find("/dev/disk/by-id") != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(warned());
  std::filesystem::create_symlink(s.data, where + "/by-id");
  s.data = where + "/by-id";
  EXPECT_FALSE(warned());
}

}  // namespace
}  // namespace twinloft::repl::daemon
