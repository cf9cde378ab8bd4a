#include "twinloft/lmtpd/intake/intake.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "../support/loop_mount.h"
#include "../support/maildir_fixture.h"
#include "fake_log.h"
#include "twinloft/lmtpd/intake/log_directory.h"
#include "twinloft/lmtpd/intake/open_log.h"

namespace twinloft::lmtpd {
namespace {

using LogOp = test::FaultyLogFiles::Op;
using test::FileNames;

using namespace std::chrono_literals;

const MountInstance this_mount{test::log_incarnation, 7, 11};
const MountInstance other_mount{test::log_incarnation, 7, 12};

// A spool with a log, and an agent whose messages go into it.
class IntakeTest : public test::MaildirFixture {
 protected:
  void SetUp() override {
    MaildirFixture::SetUp();
    data_first_ = true;
    make_log(dir_);
    environment_.mount = [](std::uint64_t) -> Result<MountInstance> { return this_mount; };
    environment_.files = [this](LogDirectory& files) {
      auto out = std::make_unique<test::FaultyDirectory>(files);
      files_ = out.get();
      return out;
    };
    environment_.retry = Duration::zero();
    settings_.checkpoint = 1h;
    settings_.log_bytes = 4u << 20;  // of a log that is made anew
    start();
  }
  void TearDown() override { agent_.reset(); }

  static void make_log(const std::string& root) {
    Fd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    Status made = LogDirectory::create(fd.get(), log_shape_of(4u << 20), test::log_incarnation,
                                       intake_log::Mark(test::log_incarnation).encode());
    ASSERT_TRUE(made.has_value()) << made.error().message;
  }
  DataFirstRule rule() {
    return [this](const SpoolHandle&) { return data_first_.load(); };
  }
  std::unique_ptr<MaildirAgent> make_agent(Intake*& intake) {
    auto by_files = make_durability(DurabilityWay::fsync, ops_, *syncs_, rule());
    auto way = std::make_unique<Intake>(settings_, std::move(by_files), ops_, clock_, rule(), environment_);
    intake = way.get();
    return std::make_unique<MaildirAgent>(MaildirConfig{"mail.example.org"}, *spool_, std::move(way), ops_,
                                          clock_);
  }
  void start() {
    agent_.reset();
    agent_ = make_agent(intake_);
  }
  // Delivers until a message goes by this way.
  void deliver_until(MadeDurable way) {
    do {
      ASSERT_EQ(deliver().code, 250) << detail_;
      std::this_thread::sleep_for(1ms);
    } while (outcome_.durable != way);
  }
  void open_log() { deliver_until(MadeDurable::intake_log); }

  Fd look_at_root() { return Fd(::open(spool_->root().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
  Result<LogDirectory> look() { return LogDirectory::open(look_at_root().get()); }
  // What a replay on a fresh mount would deliver: what no new/ has.
  FileNames replayed() {
    LogDirectory log = look().value();
    FileNames out = test::replay_of(log.read_segments().value(), log.read_mark().value(), log.incarnation());
    for (const std::string& name : test::list(maildir_ + "/new")) out.erase(name);
    return out;
  }
  // No process has the log, and it is empty.
  bool is_left_empty() {
    auto log = look();
    if (!log || !log->lock().value()) return false;
    auto chain = test::chain_of(log->read_segments().value(), log->incarnation());
    return !chain.empty() && chain.back().header.retired == chain.back().header.end_entry();
  }
  void wait_until(const std::function<bool()>& done) {
    while (!done()) std::this_thread::sleep_for(2ms);
  }

  IntakeSettings settings_;
  IntakeEnvironment environment_;
  std::atomic<test::FaultyDirectory*> files_ = nullptr;
  Intake* intake_ = nullptr;
};

TEST_F(IntakeTest, ALoggedMessageWaitsForNoSync) {
  open_log();
  ops_.clear();
  files_.load()->clear();
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::intake_log);
  EXPECT_EQ(files_.load()->calls(), (std::vector<std::string>{"append", "mark"}));
  for (const std::string& call : ops_.calls()) EXPECT_EQ(call.find("sync"), std::string::npos) << call;
  EXPECT_TRUE(std::filesystem::exists(outcome_.path));
  EXPECT_EQ(replayed(), FileNames{});
}

TEST_F(IntakeTest, WhatTheLogCannotTakeIsSynced) {
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::fsync) << "the log is not open yet, and the Maildir is new";
  open_log();
  MessageBody large = test::in_memory(test::small_message + std::string(settings_.message_bytes_max, 'x'));
  ASSERT_EQ(deliver(large).code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::fsync);
  recipient_ = test::make_recipient(dir_ + "/example.org/bob");
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::fsync) << "its directories are new";
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::intake_log);
}

// Each failure of a file operation ends in 451, and neither the Maildir nor a replay has the message.
TEST_F(IntakeTest, AFailedStepLeavesNothingToReplay) {
  open_log();
  int steps = 0;
  for (;; ++steps) {
    const auto before = test::list(maildir_ + "/new").size();
    ops_.clear();
    ops_.fail_at = steps;
    const int code = deliver().code;
    ops_.fail_at = -1;
    if (code == 250) break;
    EXPECT_EQ(code, 451) << steps;
    EXPECT_EQ(test::list(maildir_ + "/new").size(), before) << steps << " " << detail_;
    EXPECT_EQ(replayed(), FileNames{}) << steps << " " << detail_;
  }
  EXPECT_GE(steps, 6) << "open, create, write, start of writeback, writeback, link";
  EXPECT_EQ(outcome_.durable, MadeDurable::intake_log) << "such failures do not end the log";
}

TEST_F(IntakeTest, AfterAFailedAppendTheMessageIsSynced) {
  open_log();
  files_.load()->fail(LogOp::append);
  ASSERT_EQ(deliver().code, 250) << detail_;
  EXPECT_EQ(outcome_.durable, MadeDurable::fsync);
  wait_until([&] { return look()->failure().value().has_value(); });
  deliver_until(MadeDurable::fsync);
  start();
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(deliver().code, 250);
    ASSERT_EQ(outcome_.durable, MadeDurable::fsync) << "another process does not use it either";
    std::this_thread::sleep_for(1ms);
  }
}

// The message may come back by a replay. It is not lost, and the log line says so.
TEST_F(IntakeTest, WhenTheSyncFailsTooTheReplyIs451) {
  open_log();
  ops_.clear();
  files_.load()->fail(LogOp::append);
  ops_.before = [this](const std::string& call) {
    if (call.starts_with("fsync")) ops_.fail_at = static_cast<int>(ops_.calls().size()) - 1;
  };
  EXPECT_EQ(deliver().code, 451);
  EXPECT_NE(detail_.find("the intake log may have it"), std::string::npos) << detail_;
}

TEST_F(IntakeTest, AfterAFailedMarkTheMessageIsTakenBack) {
  open_log();
  const auto before = test::list(maildir_ + "/new").size();
  files_.load()->fail(LogOp::mark);
  EXPECT_EQ(deliver().code, 451);
  EXPECT_EQ(test::list(maildir_ + "/new").size(), before);
  EXPECT_EQ(replayed(), FileNames{});
  deliver_until(MadeDurable::fsync);
}

TEST_F(IntakeTest, AFailedCheckpointEndsTheLog) {
  settings_.checkpoint = 5ms;
  start();
  open_log();
  files_.load()->fail(LogOp::sync);
  // The checkpoint of the first message may fail before the next message comes, or have been done already.
  do ASSERT_EQ(deliver().code, 250) << detail_;
  while (!look()->failure().value());
  deliver_until(MadeDurable::fsync);
  EXPECT_EQ(replayed(), FileNames{});
}

TEST_F(IntakeTest, AfterACheckpointNothingIsNeeded) {
  settings_.checkpoint = 5ms;
  start();
  open_log();
  wait_until([&] {
    LogDirectory log = look().value();
    auto chain = test::chain_of(log.read_segments().value(), log.incarnation());
    return chain.size() == 1 && chain[0].header.retired == chain[0].header.end_entry();
  });
}

// Deliveries do not wait for a checkpoint, nor use the log while it hangs.
TEST_F(IntakeTest, WhileACheckpointHangsMessagesAreSynced) {
  settings_.checkpoint = 5ms;
  environment_.hangs = 50ms;
  start();
  open_log();
  test::FaultyDirectory& files = *files_;
  files.hold(LogOp::sync);
  ASSERT_EQ(deliver().code, 250);
  files.wait_for_held(1);
  deliver_until(MadeDurable::fsync);
  files.release();
  open_log();
  EXPECT_EQ(replayed(), FileNames{});
}

// The log has no room until a checkpoint, which waits here.
TEST_F(IntakeTest, WhenTheLogIsHalfFullMessagesAreSynced) {
  open_log();
  files_.load()->hold(LogOp::sync);
  const MessageBody large = test::in_memory(test::small_message + std::string(200'000, 'x'));
  int logged = 0;
  do {
    ASSERT_EQ(deliver(large).code, 250) << detail_;
    logged += outcome_.durable == MadeDurable::intake_log;
  } while (outcome_.durable == MadeDurable::intake_log);
  EXPECT_EQ(outcome_.durable, MadeDurable::fsync);
  EXPECT_GE(logged, 8);
  files_.load()->release();
  open_log();
}

TEST_F(IntakeTest, AFileWithSeveralNamesIsOneMessageOfTheLog) {
  Envelope envelope = test::make_envelope();
  envelope.recipients.clear();
  for (const char* user : {"ann", "bob", "eve"})
    envelope.recipients.push_back(test::make_recipient(dir_ + "/example.org/" + user));
  const std::vector<std::size_t> all{0, 1, 2};
  auto deliver_to_all = [&] {
    auto handle = spool_->open();
    return agent_->deliver_linked(*handle, envelope, all, test::in_memory(test::small_message));
  };
  std::vector<DeliveryOutcome> outcomes = deliver_to_all();
  while (outcomes[0].durable != MadeDurable::intake_log) outcomes = deliver_to_all();
  files_.load()->clear();
  outcomes = deliver_to_all();
  for (const DeliveryOutcome& one : outcomes) {
    EXPECT_EQ(one.reply.code, 250) << one.detail;
    EXPECT_EQ(one.durable, MadeDurable::intake_log);
  }
  EXPECT_EQ(files_.load()->calls(), (std::vector<std::string>{"append", "mark", "mark", "mark"}));
  // The second name cannot be made: it is withdrawn, and the others stay.
  int links = 0;
  ops_.before = [&](const std::string& call) {
    if (call.starts_with("link ") && ++links == 2) ops_.fail_at = static_cast<int>(ops_.calls().size()) - 1;
  };
  ops_.clear();
  outcomes = deliver_to_all();
  ops_.before = nullptr;
  ops_.fail_at = -1;
  EXPECT_EQ(outcomes[0].reply.code, 250);
  EXPECT_EQ(outcomes[1].reply.code, 451);
  EXPECT_EQ(outcomes[2].reply.code, 250);
  LogDirectory log = look().value();
  EXPECT_EQ(test::replay_of(log.read_segments().value(), log.read_mark().value(), log.incarnation()),
            FileNames{});
}

// ---- who has the log, and when

TEST_F(IntakeTest, AnIdleLogIsClosedAndEmpty) {
  environment_.idle = 20ms;
  start();
  open_log();
  wait_until([&] { return is_left_empty(); });
  open_log();
}

// A scan would find a gap before this group, and refuse the log.
void write_far_group(LogDirectory& log) {
  LogBuffer memory(log_block_bytes);
  intake_log::GroupHeader header;
  header.incarnation = log.incarnation();
  header.number = header.oldest_number = 1000;
  header.first_entry = header.retired = 1000;
  header.at = header.oldest = {log.shape().segments - 1, 0};
  ASSERT_TRUE(
      log.append(header.at.segment, 0, intake_log::GroupBuilder(memory.bytes()).finish(header)).has_value());
}

TEST_F(IntakeTest, TheLogThatItHasClosedIsOpenedAgainWithoutAScan) {
  environment_.idle = 20ms;
  start();
  open_log();
  wait_until([&] { return is_left_empty(); });
  {
    LogDirectory log = look().value();
    ASSERT_TRUE(log.lock().value());
    write_far_group(log);
  }
  open_log();
  agent_.reset();
  EXPECT_FALSE(OpenLog::open(look_at_root().get(), this_mount, nullptr).has_value())
      << "a scan accepts that group";
}

TEST_F(IntakeTest, AProcessThatLeavesGivesTheLogToTheNext) {
  open_log();
  Intake* next_intake = nullptr;
  std::unique_ptr<MaildirAgent> next = make_agent(next_intake);
  auto deliver_by_next = [&] {
    auto handle = spool_->open();
    return next->deliver(*handle, test::make_envelope(), recipient_, test::in_memory(test::small_message));
  };
  for (int i = 0; i < 20; ++i) EXPECT_EQ(deliver_by_next().durable, MadeDurable::fsync);
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::intake_log);
  intake_->leave();
  while (deliver_by_next().durable != MadeDurable::intake_log) std::this_thread::sleep_for(1ms);
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::fsync);
  next.reset();
  EXPECT_TRUE(is_left_empty());
}

// A delivery in the log is settled by the log before another process may drop what is not settled.
TEST_F(IntakeTest, TheLogIsNotLeftDuringADelivery) {
  open_log();
  std::atomic<bool> appended{false}, go_on{false};
  ops_.before = [&](const std::string& call) {
    if (!call.starts_with("link unnamed")) return;
    appended = true;
    while (!go_on) std::this_thread::sleep_for(1ms);
  };
  std::thread delivery([this] { EXPECT_EQ(deliver().code, 250); });
  wait_until([&] { return appended.load(); });
  intake_->leave();
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(look()->lock().value());
  go_on = true;
  delivery.join();
  ops_.before = nullptr;
  EXPECT_EQ(outcome_.durable, MadeDurable::intake_log);
  wait_until([&] { return is_left_empty(); });
}

// The entry of a message that was appended and not acknowledged.
void leave_unsettled(const std::string& root, const MountInstance& mount) {
  Fd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto log = OpenLog::open(fd.get(), mount, nullptr);
  ASSERT_TRUE(log.has_value()) << log.error().message;
  const PlannedName name{"example.org/ann/Maildir", "", "lost"};
  auto appended = (*log)->log().append({"Subject: lost\n\n", {&name, 1}});
  ASSERT_TRUE(appended && appended->durable);
}

TEST_F(IntakeTest, AnExceptionBeforeTheNameCancelsTheEntry) {
  open_log();
  ops_.before = [](const std::string& call) {
    if (call.starts_with("link unnamed")) throw std::bad_alloc();
  };
  EXPECT_THROW((void)deliver(), std::bad_alloc);
  ops_.before = nullptr;
  EXPECT_EQ(replayed(), FileNames{});
}

TEST_F(IntakeTest, OnTheSameMountUnsettledEntriesAreDropped) {
  leave_unsettled(dir_, this_mount);
  EXPECT_EQ(replayed(), FileNames{"lost"});
  open_log();
  EXPECT_EQ(replayed(), FileNames{});
}

TEST_F(IntakeTest, OnAnotherMountUnsettledEntriesWaitForReplay) {
  leave_unsettled(dir_, other_mount);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(deliver().code, 250);
    ASSERT_EQ(outcome_.durable, MadeDurable::fsync);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(replayed(), FileNames{"lost"});
}

// The next log is made by the process itself.
TEST_F(IntakeTest, ALogThatWasReplacedIsNotUsed) {
  settings_.log_bytes = 1u << 20;
  start();
  open_log();
  std::filesystem::rename(dir_ + "/" + log_directory_name, dir_ + "/aside");
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::fsync);
  open_log();
  EXPECT_EQ(replayed(), FileNames{});
}

// Until the log is there, messages are synced.
TEST_F(IntakeTest, AMissingLogIsMade) {
  settings_.log_bytes = 1u << 20;
  start();
  std::filesystem::rename(dir_ + "/" + log_directory_name, dir_ + "/aside");
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::fsync);
  deliver_until(MadeDurable::intake_log);
  EXPECT_EQ(look()->shape().bytes(), 1u << 20);
}

// Its messages may be accepted mail, so nothing is made in its place.
TEST_F(IntakeTest, ARefusedLogStays) {
  std::filesystem::remove(dir_ + "/" + log_directory_name + "/" + log_segment_name(0));
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(deliver().code, 250);
    EXPECT_EQ(outcome_.durable, MadeDurable::fsync);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/" + log_directory_name + "/" + log_segment_name(0)));
}

TEST_F(IntakeTest, WithoutDataFirstMessagesAreSynced) {
  data_first_ = false;
  start();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(deliver().code, 250);
    EXPECT_EQ(outcome_.durable, MadeDurable::fsync);
    std::this_thread::sleep_for(1ms);
  }
}

// As after "mount -o remount,nobarrier".
TEST_F(IntakeTest, WhenDataFirstEndsTheLogIsClosed) {
  open_log();
  data_first_ = false;
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::fsync);
  wait_until([&] { return is_left_empty(); });
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(outcome_.durable, MadeDurable::fsync);
  data_first_ = true;
  open_log();
}

// A real file system: an idle log does not keep it mounted, and the next mount is another instance.
TEST_F(IntakeTest, AnIdleSpoolCanBeUnmounted) {
  ASSERT_TRUE(test::is_root() || ::getuid() == 0);
  agent_.reset();
  become_root();
  for (const char* type : {"ext4", "xfs"}) {
    test::LoopMount mount(path(type), type, 320);
    give_to_mail_user(mount.path());
    become_mail_user();
    make_log(mount.path());
    use_spool(mount.path());
    data_first_ = true;
    environment_.mount = intake_environment().mount;
    environment_.idle = 20ms;
    agent_ = make_agent(intake_);
    open_log();
    become_root();
    wait_until([&] { return mount.unmount(); });
    mount.mount();
    become_mail_user();
    open_log();
    agent_.reset();
    become_root();
  }
}

}  // namespace
}  // namespace twinloft::lmtpd
