#include "twinloft/lmtpd/intake/open_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <random>

#include "../support/fixture.h"
#include "fake_log.h"

namespace twinloft::lmtpd {
namespace {

const MountInstance first_mount{test::log_incarnation, 7, 11}, second_mount{test::log_incarnation, 7, 12};

// A log in a folder, which is opened, used, emptied and closed.
class OpenLogTest : public test::DirTest {
 protected:
  OpenLogTest() {
    give_to_mail_user(dir_);
    become_mail_user();
    root_ = Fd(::open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    make(test::log_incarnation);
  }
  void make(const Uuid& incarnation) {
    Status made = LogDirectory::create(root_.get(), {shape_bytes, 4}, incarnation,
                                       intake_log::Mark(incarnation).encode());
    ASSERT_TRUE(made.has_value()) << made.error().message;
  }
  std::unique_ptr<OpenLog> open(const ClosedLog* closed, const MountInstance& mount = first_mount) {
    auto opened = OpenLog::open(root_.get(), mount, nullptr, closed);
    EXPECT_TRUE(opened.has_value()) << opened.error().message;
    return std::move(*opened);
  }
  static std::uint64_t append(OpenLog& open, std::size_t bytes = 100) {
    const std::vector<PlannedName> names{{"example.org/ann/Maildir", "", "1.host"}};
    const std::string content(bytes, 'x');
    auto appended = open.log().append({content, names});
    EXPECT_TRUE(appended && appended->durable);
    return appended->first;
  }
  static void deliver(OpenLog& open, std::size_t bytes = 100) {
    EXPECT_TRUE(open.log().settle(append(open, bytes)).has_value());
    open.log().end();
  }
  static ClosedLog close(std::unique_ptr<OpenLog> open) {
    open->log().stop();
    Status retired = open->log().retire();
    EXPECT_TRUE(retired.has_value()) << retired.error().message;
    return open->closed();
  }

  static constexpr std::uint64_t shape_bytes = 64u << 10;
  Fd root_;
};

// The ring is lapped several times.
TEST_F(OpenLogTest, WhatThisProcessLeftIsWhatAScanFinds) {
  std::minstd_rand random(1);
  ClosedLog closed = close(open(nullptr));
  EXPECT_TRUE(closed.ending.scan.groups.empty()) << "nothing was written";
  for (int round = 0; round < 40; ++round) {
    auto again = open(&closed);
    EXPECT_FALSE(again->was_scanned()) << round;
    for (unsigned i = random() % 4; i > 0; --i) deliver(*again, random() % 9000);
    closed = close(std::move(again));
    auto scanned = open(nullptr);
    EXPECT_TRUE(scanned->was_scanned());
    const intake_log::Scan found = close(std::move(scanned)).ending.scan;
    const intake_log::Scan& left = closed.ending.scan;
    EXPECT_EQ(found.end, left.end) << round;
    EXPECT_EQ(found.next_group, left.next_group) << round;
    EXPECT_EQ(found.next_entry, left.next_entry) << round;
    EXPECT_EQ(found.retired, left.retired) << round;
    ASSERT_EQ(found.groups.size(), left.groups.size()) << round;
    if (found.groups.empty()) continue;
    EXPECT_EQ(found.groups.back().number, left.groups.back().number) << round;
    EXPECT_EQ(found.groups.back().at, left.groups.back().at) << round;
    EXPECT_EQ(found.groups.back().end_entry(), left.groups.back().end_entry()) << round;
  }
  EXPECT_GT(closed.ending.scan.next_group, 40u) << "the ring was not lapped";
}

TEST_F(OpenLogTest, AfterAnotherProcessItIsScanned) {
  const ClosedLog closed = close(open(nullptr));
  auto other = open(nullptr);
  deliver(*other);
  close(std::move(other));
  EXPECT_TRUE(open(&closed)->was_scanned());
}

// The entry was never acknowledged. A process that wrote over its group without a scan would break the
// numbers.
TEST_F(OpenLogTest, AfterAProcessThatWasKilledItIsScanned) {
  auto own = open(nullptr);
  deliver(*own);
  const ClosedLog closed = close(std::move(own));
  append(*open(nullptr));
  auto again = open(&closed);
  EXPECT_TRUE(again->was_scanned());
  deliver(*again);
  EXPECT_EQ(close(std::move(again)).ending.scan.next_entry, 3u);
}

// The client sends a dropped message again. A replay must not deliver it too.
TEST_F(OpenLogTest, WhatAKilledProcessLeftIsDroppedDurably) {
  append(*open(nullptr));
  test::FaultyDirectory* files = nullptr;
  auto again = OpenLog::open(root_.get(), first_mount, [&](LogDirectory& directory) {
    auto out = std::make_unique<test::FaultyDirectory>(directory);
    files = out.get();
    return out;
  });
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(files->calls(), (std::vector<std::string>{"mark", "sync"}));
}

// The next group may not fit before the end of the segment.
TEST_F(OpenLogTest, AGroupInTheNextSegmentIsNoticed) {
  auto own = open(nullptr);
  while (own->closed().ending.scan.end.offset < shape_bytes - 3 * log_block_bytes) {
    deliver(*own, 3000);
    ASSERT_TRUE(own->log().checkpoint().has_value());
  }
  const ClosedLog closed = close(std::move(own));
  ASSERT_EQ(closed.ending.scan.end.segment, 0u);
  auto other = open(nullptr);
  append(*other, 4 * log_block_bytes);
  other.reset();
  EXPECT_TRUE(open(&closed)->was_scanned());
}

TEST_F(OpenLogTest, OnAnotherMountItIsScanned) {
  const ClosedLog closed = close(open(nullptr));
  EXPECT_TRUE(open(&closed, second_mount)->was_scanned());
}

TEST_F(OpenLogTest, AnotherLogIsScanned) {
  auto own = open(nullptr);
  deliver(*own);
  const ClosedLog closed = close(std::move(own));
  std::filesystem::remove_all(path(log_directory_name));
  make(test::log_incarnation);
  auto again = open(&closed);
  EXPECT_TRUE(again->was_scanned());
  deliver(*again);
  EXPECT_EQ(close(std::move(again)).ending.scan.next_entry, 1u);
}

}  // namespace
}  // namespace twinloft::lmtpd
