#include "twinloft/lmtpd/intake/log_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>

#include "../support/fixture.h"

namespace twinloft::lmtpd {
namespace {

namespace fs = std::filesystem;

constexpr LogShape small{2 * log_block_bytes, 3};
const Uuid incarnation = Uuid::parse("2a64ab35-4699-4b8c-8bd4-683fee16b378").value();

class LogDirectoryTest : public test::DirTest {
 protected:
  LogDirectoryTest() { root_ = Fd(::open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
  Status create(const LogShape& shape = small) {
    return LogDirectory::create(root_.get(), shape, incarnation, as_bytes("the mark"));
  }
  Result<LogDirectory> open() { return LogDirectory::open(root_.get()); }
  std::string in_log(const std::string& name) { return path(std::string(log_directory_name) + "/" + name); }
  std::string error() {
    auto opened = open();
    return opened ? "opened" : opened.error().message;
  }
  Fd root_;
};

LogBuffer filled(char c, std::size_t blocks = 1) {
  LogBuffer out(blocks * log_block_bytes);
  std::ranges::fill(out.bytes(), static_cast<std::byte>(c));
  return out;
}

TEST_F(LogDirectoryTest, ANewLogIsFullyWrittenAndPrivate) {
  EXPECT_EQ(open().error().code, Errc::not_found);
  ASSERT_TRUE(create().has_value());
  auto log = open();
  ASSERT_TRUE(log.has_value()) << log.error().message;
  EXPECT_EQ(log->shape(), small);
  EXPECT_EQ(log->incarnation(), incarnation);
  EXPECT_EQ(as_text(log->read_mark().value()), "the mark");
  EXPECT_EQ(log->failure().value(), std::nullopt);
  struct stat found{};
  ASSERT_EQ(::stat(path(log_directory_name).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0700u);
  EXPECT_EQ(log->place(), (LogPlace{found.st_dev, found.st_ino}));
  EXPECT_EQ(find_log(root_.get()).value(), log->place());
  for (const char* name : {"segment-00", "segment-01", "segment-02"}) {
    ASSERT_EQ(::stat(in_log(name).c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777, 0600u);
    EXPECT_EQ(static_cast<std::uint64_t>(found.st_size), small.segment_bytes);
    EXPECT_GE(static_cast<std::uint64_t>(found.st_blocks) * 512, small.segment_bytes);
  }
  EXPECT_FALSE(fs::exists(in_log("segment-03")));
}

TEST_F(LogDirectoryTest, WhatIsWrittenIsReadPastThePageCache) {
  ASSERT_TRUE(create().has_value());
  LogDirectory log = open().value();
  ASSERT_TRUE(log.append(1, log_block_bytes, filled('a').bytes()).has_value());
  LogDirectory other = open().value();
  std::vector<LogBuffer> all = other.read_segments().value();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(static_cast<char>(all[1].bytes()[log_block_bytes]), 'a');
  EXPECT_EQ(static_cast<char>(all[1].bytes()[log_block_bytes - 1]), '\0');
  for (std::size_t other_segment : {0u, 2u})
    EXPECT_TRUE(
        std::ranges::all_of(all[other_segment].bytes(), [](std::byte b) { return b == std::byte{}; }));
  LogBuffer past(log_block_bytes);
  EXPECT_EQ(log.read(0, small.segment_bytes, past.bytes()).error().code, Errc::corrupt);
}

TEST_F(LogDirectoryTest, MarkAndFailureAreAttributes) {
  ASSERT_TRUE(create().has_value());
  LogDirectory log = open().value();
  ASSERT_TRUE(log.set_mark(as_bytes("another")).has_value());
  ASSERT_TRUE(log.set_failure(std::string(300, 'x')).has_value());
  ASSERT_TRUE(log.sync().has_value());
  LogDirectory again = open().value();
  EXPECT_EQ(as_text(again.read_mark().value()), "another");
  EXPECT_EQ(again.failure().value(), std::string(128, 'x')) << "it is short, so that it fits beside the mark";
  ASSERT_TRUE(again.clear_failure().has_value());
  ASSERT_TRUE(again.clear_failure().has_value());
  EXPECT_EQ(again.failure().value(), std::nullopt);
  ASSERT_EQ(::removexattr(path(log_directory_name).c_str(), "user.twinloft.intake.mark"), 0);
  EXPECT_EQ(again.read_mark().error().code, Errc::not_found);
}

// An attribute block of ext4 has room for the largest mark and a failure.
TEST_F(LogDirectoryTest, TheLargestMarkFits) {
  ASSERT_TRUE(create().has_value());
  LogDirectory log = open().value();
  EXPECT_TRUE(log.set_failure(std::string(128, 'x')).has_value());
  EXPECT_TRUE(log.set_mark(std::vector<std::byte>(3600)).has_value());
}

TEST_F(LogDirectoryTest, OneProcessHasTheLock) {
  ASSERT_TRUE(create().has_value());
  LogDirectory second = open().value();
  {
    LogDirectory first = open().value();
    EXPECT_TRUE(first.lock().value());
    EXPECT_FALSE(second.lock().value());
    EXPECT_EQ(create().error().code, Errc::conflict);
  }
  EXPECT_TRUE(second.lock().value());
}

TEST_F(LogDirectoryTest, AnExistingLogIsNotOverwritten) {
  ASSERT_TRUE(create().has_value());
  ASSERT_TRUE(open()->append(0, 0, filled('a').bytes()).has_value());
  EXPECT_EQ(create().error().code, Errc::conflict);
  EXPECT_EQ(static_cast<char>(open()->read_segments().value()[0].bytes()[0]), 'a');
}

// The second attempt must not take the segments for those of an interrupted creation.
TEST_F(LogDirectoryTest, SegmentsWithoutTheirLockFileStay) {
  ASSERT_TRUE(create().has_value());
  ASSERT_TRUE(open().value().append(1, 0, filled('a').bytes()).has_value());
  fs::remove(in_log("lock"));
  for (int attempt = 1; attempt <= 2; ++attempt) {
    EXPECT_EQ(open().error().code, Errc::corrupt);
    EXPECT_EQ(create().error().code, Errc::corrupt) << "attempt " << attempt;
    std::ifstream segment(in_log("segment-01"));
    EXPECT_EQ(segment.get(), 'a') << "attempt " << attempt;
  }
}

TEST_F(LogDirectoryTest, AnInterruptedCreationIsFinished) {
  ASSERT_TRUE(create({log_block_bytes, 5}).has_value());
  fs::resize_file(in_log("lock"), 0);
  EXPECT_EQ(open().error().code, Errc::not_found);
  ASSERT_TRUE(create().has_value());
  EXPECT_EQ(open()->shape(), small);
}

TEST_F(LogDirectoryTest, AnEmptyDirectoryOfTheAdministratorIsUsed) {
  fs::create_directory(path(log_directory_name));
  fs::permissions(path(log_directory_name), fs::perms(0755));
  EXPECT_EQ(create().error().code, Errc::denied);
  fs::permissions(path(log_directory_name), fs::perms(0700));
  EXPECT_TRUE(create().has_value());
  EXPECT_TRUE(open().has_value());
}

TEST_F(LogDirectoryTest, ACopyIsRefused) {
  ASSERT_TRUE(create().has_value());
  fs::rename(path(log_directory_name), path("aside"));
  fs::copy(path("aside"), path(log_directory_name), fs::copy_options::recursive);
  fs::permissions(path(log_directory_name), fs::perms(0700));
  EXPECT_NE(error().find("is a copy"), std::string::npos) << error();
  fs::remove_all(path(log_directory_name));
  fs::rename(path("aside"), path(log_directory_name));
  EXPECT_EQ(error(), "opened");
}

TEST_F(LogDirectoryTest, EachFileIsChecked) {
  struct Case {
    std::function<void()> spoil;
    std::string words;
  };
  const Case cases[] = {
      {[&] { fs::remove(in_log("segment-01")); }, "is a copy"},
      {[&] { fs::resize_file(in_log("segment-01"), 4096); }, "is not the size"},
      {[&] { fs::resize_file(in_log("segment-00"), 0); }, "is not the size"},
      {[&] { fs::permissions(in_log("segment-02"), fs::perms(0640)); }, "mode 0640"},
      {[&] { fs::permissions(path(log_directory_name), fs::perms(0750)); }, "mode 0750"},
      {[&] { ASSERT_EQ(::chown(in_log("segment-00").c_str(), 61234, 61234), 0); }, "uid 61234"},
      {[&] { ASSERT_EQ(::chown(path(log_directory_name).c_str(), 61234, 61234), 0); }, "uid 61234"},
      {[&] {
         fs::rename(in_log("segment-00"), in_log("other"));
         fs::create_symlink("other", in_log("segment-00"));
       },
       "symbolic link"},
      {[&] {
         fs::rename(in_log("segment-00"), in_log("other"));
         fs::copy(in_log("other"), in_log("segment-00"));
       },
       "is a copy"},
      {[&] { std::ofstream(in_log("lock")) << "twinloft\n"; }, "names no incarnation"},
      {[&] {
         fs::rename(path(log_directory_name), path("aside"));
         fs::create_directory_symlink("aside", path(log_directory_name));
       },
       "Not a directory"},
  };
  ASSERT_TRUE(test::is_root());
  for (const Case& each : cases) {
    ASSERT_TRUE(create().has_value());
    each.spoil();
    EXPECT_NE(error().find(each.words), std::string::npos) << each.words << ": " << error();
    fs::remove_all(path("aside"));
    fs::remove_all(path(log_directory_name));
  }
}

TEST(LogShapeTest, ASizeIsRoundedUpToBlocks) {
  EXPECT_EQ(log_shape_of(64u << 20), (LogShape{8u << 20, 8}));
  EXPECT_EQ(log_shape_of((64u << 20) + 1), (LogShape{(8u << 20) + 4096, 8}));
  EXPECT_EQ(log_shape_of(0), (LogShape{4096, 8}));
}

}  // namespace
}  // namespace twinloft::lmtpd
