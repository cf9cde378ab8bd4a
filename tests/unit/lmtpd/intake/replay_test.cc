#include "twinloft/lmtpd/intake/replay.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <fstream>

#include "../support/fixture.h"
#include "../support/recording_ops.h"
#include "fake_log.h"
#include "twinloft/intake_log/group.h"
#include "twinloft/intake_log/mark.h"

namespace twinloft::lmtpd {
namespace {

namespace fs = std::filesystem;

const Uuid replay_incarnation = Uuid::parse("2a64ab35-4699-4b8c-8bd4-683fee16b378").value();
const MountInstance mount_before{Uuid::parse("11111111-1111-4111-8111-111111111111").value(), 7, 70};
const MountInstance mount_now{Uuid::parse("11111111-1111-4111-8111-111111111111").value(), 7, 71};

// A log with one small group after the other.
class ReplayTest : public test::DirTest {
 protected:
  ReplayTest() {
    for (const char* box : {"new", "cur", "tmp"})
      fs::create_directories(path("ann/Maildir/" + std::string(box)));
    for (const auto& entry : fs::recursive_directory_iterator(dir_)) give_to_mail_user(entry.path());
    give_to_mail_user(dir_);
    become_mail_user();
    root_ = Fd(::open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const LogShape shape{4 * log_block_bytes, 3};
    Status made = LogDirectory::create(root_.get(), shape, replay_incarnation,
                                       intake_log::Mark(replay_incarnation).encode());
    if (!made) std::abort();
    reopen();
  }
  void reopen() {
    log_.reset();
    auto opened = LogDirectory::open(root_.get());
    if (!opened) std::abort();
    log_.emplace(*std::move(opened));
  }
  static std::string content_of(const std::string& name) { return "Subject: " + name + "\n\ntext\n"; }
  // Writes a group with these messages to ann, or with one cancel.
  void write(const std::vector<std::string>& names, std::optional<std::uint64_t> cancel = {}) {
    LogBuffer memory(log_block_bytes);
    intake_log::GroupBuilder builder(memory.bytes());
    for (const std::string& name : names) {
      const intake_log::EntryName entry{"ann/Maildir", "", name};
      ASSERT_TRUE(builder.add_message({&entry, 1}, content_of(name)).has_value());
    }
    if (cancel) {
      ASSERT_TRUE(builder.add_cancel(*cancel).has_value());
    }
    intake_log::GroupHeader header;
    header.incarnation = replay_incarnation;
    header.number = next_group_;
    header.first_entry = next_entry_;
    header.mount = writer_;
    header.retired = retired_;
    header.oldest_number = 0;
    header.at = {static_cast<std::uint32_t>(next_group_ / 4), next_group_ % 4 * log_block_bytes};
    ++next_group_;
    next_entry_ += builder.entries();
    ASSERT_TRUE(log_->append(header.at.segment, header.at.offset, builder.finish(header)).has_value());
  }
  void mark(std::initializer_list<std::uint64_t> settled) {
    intake_log::Mark mark(replay_incarnation);
    for (std::uint64_t entry : settled) mark.settle(entry);
    ASSERT_TRUE(log_->set_mark(mark.encode()).has_value());
  }
  intake_log::Mark mark_now() {
    return intake_log::Mark::decode(log_->read_mark().value(), replay_incarnation).value();
  }
  Result<ReplayReport> replay(const MountInstance& here = mount_now) {
    return replay_log(*log_, {root_.get(), here, nullptr}, ops_);
  }
  std::vector<std::string> in_new() {
    auto out = test::list(path("ann/Maildir/new"));
    std::ranges::sort(out);
    return out;
  }
  void put(const std::string& name) {
    std::ofstream(path("ann/Maildir/" + name)) << content_of(name.substr(name.find('/') + 1, 6));
  }

  Fd root_;
  std::optional<LogDirectory> log_;
  test::RecordingOps ops_;
  MountInstance writer_ = mount_before;
  std::uint64_t next_group_ = 0, next_entry_ = 0, retired_ = 0;
};

using Names = std::vector<std::string>;

// A group that retires the entries, and a mark that is older than the group, would be no log at all.
TEST_F(ReplayTest, TheMarkIsDurableBeforeTheLogIsEmptied) {
  write({"1.host"});
  test::FaultyDirectory files(*log_);
  ASSERT_TRUE(replay_log(*log_, {root_.get(), mount_now, nullptr, &files}, ops_).has_value());
  const Names calls = files.calls();
  ASSERT_GE(calls.size(), 3u);
  EXPECT_EQ(Names(calls.end() - 3, calls.end()), (Names{"mark", "sync", "append"}));
}

TEST_F(ReplayTest, WithoutThatSyncNothingIsRetired) {
  write({"1.host"});
  test::FaultyDirectory files(*log_);
  files.fail(test::FaultyLogFiles::Op::sync);
  EXPECT_FALSE(replay_log(*log_, {root_.get(), mount_now, nullptr, &files}, ops_).has_value());
  EXPECT_EQ(files.count("append"), 0u);
}

TEST_F(ReplayTest, ALogThatWasNeverUsedHasNothing) {
  auto report = replay();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->entries, 0u);
  EXPECT_TRUE(report->retired);
}

// The decisions of docs/formats/intake-log.md, side by side.
TEST_F(ReplayTest, EachEntryGetsItsDecision) {
  write({"1.host", "2.host", "3.host"});
  write({"4.host", "5.host", "6.host"});
  write({}, 4);
  mark({1});
  put("new/1.host");
  put("cur/3.host:2,S");
  auto report = replay();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_FALSE(report->same_mount);
  EXPECT_EQ(report->entries, 6u);
  EXPECT_EQ(report->present, 2u) << "1 in new/, 3 in cur/";
  EXPECT_EQ(report->gone, 1u) << "2 was settled";
  EXPECT_EQ(report->withdrawn, 1u) << "5 was cancelled";
  EXPECT_EQ(report->delivered, 2u);
  EXPECT_EQ(in_new(), (Names{"1.host", "4.host", "6.host"}));
  EXPECT_EQ(test::slurp(path("ann/Maildir/new/6.host")), content_of("6.host"));
  EXPECT_TRUE(report->retired);
  EXPECT_EQ(mark_now().prefix(), 6u);
}

TEST_F(ReplayTest, ASecondReplayHasNothingToDo) {
  write({"1.host"});
  ASSERT_TRUE(replay()->retired);
  fs::remove(path("ann/Maildir/new/1.host"));
  reopen();
  auto content = look_into_log(*log_, mount_now);
  ASSERT_TRUE(content.has_value()) << content.error().message;
  EXPECT_EQ(content->entries, 0u);
  EXPECT_TRUE(content->of_this_mount);
  EXPECT_EQ(replay()->entries, 0u);
  EXPECT_EQ(in_new(), Names{});
}

// Readers are at work there, and have moved what they like.
TEST_F(ReplayTest, OnTheMountOfTheWriterNothingIsDelivered) {
  writer_ = mount_now;
  write({"1.host", "2.host"});
  mark({0});
  auto report = replay();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_TRUE(report->same_mount);
  EXPECT_EQ(report->dropped, 1u);
  EXPECT_EQ(report->delivered, 0u);
  EXPECT_EQ(in_new(), Names{});
  EXPECT_TRUE(report->retired);
  EXPECT_EQ(mark_now().prefix(), 2u);
}

TEST_F(ReplayTest, EntriesBelowRetiredAreLeft) {
  write({"1.host"});
  retired_ = 1;
  write({"2.host"});
  mark({0});
  auto report = replay();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->entries, 1u);
  EXPECT_EQ(in_new(), Names{"2.host"});
}

TEST_F(ReplayTest, AFailedLogIsForAFreshMount) {
  write({"1.host"});
  ASSERT_TRUE(log_->set_failure("write to segment-00: Input/output error").has_value());
  auto report = replay(mount_before);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, Errc::unavailable);
  EXPECT_EQ(mark_now().prefix(), 0u);
  report = replay();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(in_new(), Names{"1.host"});
  EXPECT_EQ(log_->failure().value(), std::nullopt);
}

TEST_F(ReplayTest, AMissingMarkIsRefused) {
  write({"1.host"});
  ASSERT_EQ(::removexattr(path(log_directory_name).c_str(), "user.twinloft.intake.mark"), 0);
  auto report = replay();
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, Errc::not_found);
  EXPECT_EQ(look_into_log(*log_, mount_now).error().code, Errc::not_found);
  EXPECT_EQ(in_new(), Names{});
}

TEST_F(ReplayTest, AForeignMarkIsRefused) {
  write({"1.host"});
  const Uuid other = Uuid::parse("3a64ab35-4699-4b8c-8bd4-683fee16b378").value();
  ASSERT_TRUE(log_->set_mark(intake_log::Mark(other).encode()).has_value());
  EXPECT_FALSE(replay().has_value());
  EXPECT_EQ(in_new(), Names{});
}

// The spool is newer than the log, which is of a backup.
TEST_F(ReplayTest, AMarkBeyondTheLogIsRefused) {
  write({"1.host"});
  ASSERT_TRUE(log_->set_mark(intake_log::Mark(replay_incarnation, 100).encode()).has_value());
  EXPECT_FALSE(replay().has_value());
  EXPECT_EQ(in_new(), Names{});
}

TEST_F(ReplayTest, ATornNewestGroupWasNeverAcknowledged) {
  write({"1.host"});
  write({"2.host"});
  LogBuffer zeros(log_block_bytes);
  ASSERT_TRUE(log_->append(0, log_block_bytes, zeros.bytes()).has_value());
  auto report = replay();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(in_new(), Names{"1.host"});
  EXPECT_TRUE(report->retired);
}

// What can be read is delivered. The log is not used again.
TEST_F(ReplayTest, ADamagedGroupKeepsTheLog) {
  write({"1.host"});
  write({"2.host"});
  write({"3.host"});
  LogBuffer zeros(log_block_bytes);
  ASSERT_TRUE(log_->append(0, log_block_bytes, zeros.bytes()).has_value());
  auto report = replay();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_FALSE(report->damage.empty());
  EXPECT_FALSE(report->retired);
  EXPECT_EQ(in_new(), (Names{"1.host", "3.host"}));
  EXPECT_FALSE(look_into_log(*log_, mount_now).has_value());
}

// The first run had no room. Readers were at work before the second run.
TEST_F(ReplayTest, AfterAFullDiskOnlyTheMissingMessagesAreDelivered) {
  write({"1.host", "2.host"});
  put("new/1.host");
  ops_.before = [this, number = 0](const std::string& step) mutable {
    if (step == "write") ops_.fail_at = number;
    ++number;
  };
  ops_.fail_with = ENOSPC;
  auto report = replay();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->of(Fate::kept), 1u);
  EXPECT_FALSE(report->retired);
  fs::remove(path("ann/Maildir/new/1.host"));
  ops_.before = nullptr;
  ops_.fail_at = -1;
  report = replay();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->gone, 1u);
  EXPECT_EQ(report->delivered, 1u);
  EXPECT_TRUE(report->retired);
  EXPECT_EQ(in_new(), Names{"2.host"});
}

// Without the sync of the directory, the space of entries would be used again whose names may be lost.
TEST_F(ReplayTest, AFailedSyncRetiresNothing) {
  write({"1.host"});
  ops_.before = [this, number = 0](const std::string& step) mutable {
    if (step == "syncfs") ops_.fail_at = number;
    ++number;
  };
  EXPECT_FALSE(replay().has_value());
  EXPECT_EQ(mark_now().prefix(), 0u);
}

}  // namespace
}  // namespace twinloft::lmtpd
