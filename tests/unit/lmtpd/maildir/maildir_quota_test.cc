// Deliveries of the built-in agent to mailboxes with a quota: the refusals, and a correct maildirsize in
// every case.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <latch>
#include <thread>

#include "../support/maildir_fixture.h"
#include "maildir_quota.h"
#include "maildirsize.h"

namespace twinloft::lmtpd {
namespace {

class MaildirQuotaTest : public test::MaildirFixture {
 protected:
  void SetUp() override {
    MaildirFixture::SetUp();
    use();
  }
  void use(QuotaConfig quota = {}, FolderConfig folders = {}) {
    quota.driver = QuotaDriver::maildir;
    use_spool(dir_, DurabilityWay::fsync, folders, std::move(quota));
  }
  Reply deliver_with(std::uint64_t bytes_max, std::uint64_t messages_max = 0) {
    recipient_.user.quota = {bytes_max, messages_max};
    return deliver();
  }
  std::optional<Reply> refusal(std::uint64_t size) {
    auto out = MaildirFixture::refusal(size);
    EXPECT_FALSE(state_.spool || state_.counter);
    return out;
  }
  std::string file() { return test::slurp(maildir_ + "/maildirsize"); }
  void write_file(const std::string& text) { std::ofstream(maildir_ + "/maildirsize") << text; }
  // The real use, counted from every file.
  QuotaUsage really() {
    QuotaUsage out;
    if (!std::filesystem::exists(maildir_)) return out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(maildir_)) {
      std::string parent = entry.path().parent_path().filename();
      if (!entry.is_regular_file() || (parent != "new" && parent != "cur")) continue;
      out.bytes += static_cast<std::int64_t>(entry.file_size());
      out.messages += 1;
    }
    return out;
  }
  QuotaUsage told() {
    auto parsed = parse_maildirsize(file());
    EXPECT_TRUE(parsed) << file();
    return parsed ? parsed->used : QuotaUsage{-1, -1};
  }
  void put(const std::string& path, std::size_t bytes) {
    std::filesystem::create_directories(std::filesystem::path(maildir_ + "/" + path).parent_path());
    std::ofstream(maildir_ + "/" + path) << std::string(bytes, 'x');
  }
};

TEST_F(MaildirQuotaTest, CountsFromTheFirstMessage) {
  EXPECT_EQ(deliver_with(100'000, 50).code, 250);
  EXPECT_EQ(file().substr(0, file().find('\n')), "100000S,50C");
  EXPECT_EQ(told(), really());
  EXPECT_EQ(deliver().code, 250);
  EXPECT_EQ(told(), really());
  EXPECT_EQ(told().messages, 2);
}

TEST_F(MaildirQuotaTest, WithoutALimitNobodyCounts) {
  EXPECT_EQ(deliver().code, 250);
  EXPECT_EQ(file(), "");
  write_file("0S\n1000 5\n");  // as Dovecot writes it
  EXPECT_EQ(deliver().code, 250);
  EXPECT_EQ(told().messages, 6);
}

TEST_F(MaildirQuotaTest, AFullMailboxTakesNothing) {
  ASSERT_EQ(deliver_with(100'000, 2).code, 250);
  ASSERT_EQ(deliver().code, 250);
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 552);
  EXPECT_EQ(reply.enhanced, "5.2.2");
  EXPECT_NE(detail_.find("would exceed the quota of 100000 bytes, 2 messages"), std::string::npos) << detail_;
  EXPECT_EQ(really().messages, 2);
  EXPECT_EQ(told(), really());
  EXPECT_TRUE(test::list(maildir_ + "/tmp").empty());
}

TEST_F(MaildirQuotaTest, BySettingItIsTriedAgain) {
  QuotaConfig quota;
  quota.over = OverQuota::defer;
  use(quota);
  ASSERT_EQ(deliver_with(0, 1).code, 250);
  recipient_.user.quota = {0, 1};
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 452);
  EXPECT_EQ(reply.enhanced, "4.2.2");
}

TEST_F(MaildirQuotaTest, TheSenderHearsOfItBeforeItSends) {
  recipient_.user.quota = {1000, 0};
  EXPECT_FALSE(refusal(0)) << "the Maildir does not exist yet";
  EXPECT_FALSE(refusal(1173));
  EXPECT_EQ(refusal(1174)->enhanced, "5.2.3") << "more than limit and grace, with line ends of one byte";
  EXPECT_FALSE(std::filesystem::exists(maildir_)) << "a check creates nothing";
  put("cur/1,S=900:2,S", 900);
  EXPECT_FALSE(refusal(213));
  EXPECT_EQ(refusal(214)->enhanced, "5.2.2");
  put("cur/2,S=100:2,S", 100);
  std::filesystem::remove(maildir_ + "/maildirsize");
  EXPECT_EQ(refusal(0)->enhanced, "5.2.2");
  recipient_.user.quota = {};
  EXPECT_FALSE(refusal(1'000'000));
}

TEST_F(MaildirQuotaTest, FoldersCountAndIgnoredOnesDoNot) {
  QuotaConfig quota;
  quota.ignored = {".Trash"};
  use(quota);
  put("cur/1,S=10:2,S", 10);
  put(".Lists/new/2", 20);            // the name has no size
  put(".Lists.dev/cur/3,S=30x", 30);  // the size cannot be parsed
  put(".Trash/cur/4,S=400", 400);
  put("tmp/5,S=5000", 5000);
  put(".Lists/tmp/6,S=5000", 5000);
  recipient_.user.quota = {100'000, 0};
  EXPECT_FALSE(refusal(0));
  EXPECT_EQ(file(), "100000S\n60 3\n");
}

TEST_F(MaildirQuotaTest, WhatGoesIntoAnIgnoredFolderIsTakenAndNotCounted) {
  QuotaConfig quota;
  quota.ignored = {".Trash"};
  use(quota, {FoldersByDetail::create});
  ASSERT_EQ(deliver_with(0, 1).code, 250);
  EXPECT_EQ(deliver().code, 552);
  recipient_.detail = "Trash";
  EXPECT_FALSE(refusal(0)) << "the refusal comes before the message";
  EXPECT_EQ(deliver().code, 250);
  EXPECT_EQ(told().messages, 1);
  recipient_.detail = "Lists";
  EXPECT_EQ(refusal(0)->code, 552);
}

// A check at RCPT creates nothing. A file with the name of a folder is left alone.
TEST_F(MaildirQuotaTest, AQuestionMakesNothing) {
  use({}, {FoldersByDetail::create});
  ASSERT_EQ(deliver_with(1000, 10).code, 250);
  std::filesystem::create_directory(maildir_ + "/.git");
  recipient_.detail = "git";
  EXPECT_FALSE(refusal(0));
  EXPECT_TRUE(std::filesystem::is_empty(maildir_ + "/.git"));
  recipient_.detail = "missing";
  EXPECT_FALSE(refusal(0));
  EXPECT_FALSE(std::filesystem::exists(maildir_ + "/.missing"));
}

// A folder that is not created: the mail goes to the inbox.
TEST_F(MaildirQuotaTest, AnIgnoredFolderThatIsNotThereTakesNothing) {
  QuotaConfig quota;
  quota.ignored = {".Trash"};
  use(quota, {FoldersByDetail::existing});
  ASSERT_EQ(deliver_with(0, 1).code, 250);
  recipient_.detail = "Trash";
  EXPECT_EQ(refusal(0)->code, 552);
  EXPECT_EQ(deliver().code, 552);
  put(".Trash/cur/4,S=400", 400);
  EXPECT_FALSE(refusal(0));
  EXPECT_EQ(deliver().code, 250);
  recipient_.user.detail_folders = FoldersByDetail::none;
  EXPECT_EQ(refusal(0)->code, 552);
}

TEST_F(MaildirQuotaTest, ALimitThatMayBeAnotherByNowRefusesNobodyForGood) {
  ASSERT_EQ(deliver_with(0, 1).code, 250);
  recipient_.user.is_old = true;
  EXPECT_EQ(refusal(0)->enhanced, "4.2.2");
  EXPECT_EQ(deliver().enhanced, "4.2.2");
  recipient_.user.quota = {10, 0};
  EXPECT_EQ(refusal(100'000)->enhanced, "4.2.2") << "more than the mailbox may hold";
  recipient_.user.is_old = false;
  EXPECT_EQ(refusal(100'000)->enhanced, "5.2.3");
}

TEST_F(MaildirQuotaTest, AFileThatIsWrongIsMadeAnew) {
  for (const char* text : {"", "garbage", "100000S\n", "100000S\n-5 1\n", "99S\n1 1\n"}) {
    std::filesystem::remove_all(maildir_);
    put("cur/1,S=10:2,S", 10);
    write_file(text);
    EXPECT_EQ(deliver_with(100'000).code, 250) << text;
    EXPECT_EQ(told(), really()) << text;
  }
}

TEST_F(MaildirQuotaTest, AFileThatHasGrownIsMadeAnew) {
  put("cur/1,S=10:2,S", 10);
  std::string text = "100000S\n10 1\n";
  while (text.size() < 5120) text += "0 0\n";
  write_file(text);
  EXPECT_EQ(deliver_with(100'000).code, 250);
  EXPECT_LT(file().size(), 100u);
  EXPECT_EQ(told(), really());
}

TEST_F(MaildirQuotaTest, WhatSaysOverIsNotBelievedForLong) {
  put("cur/1,S=10:2,S", 10);
  write_file("1000S\n900 1\n300 1\n");  // most of it was removed by hand
  recipient_.user.quota = {1000, 0};
  EXPECT_FALSE(refusal(0));
  EXPECT_EQ(file(), "1000S\n10 1\n");
  write_file("1000S\n5000 1\n");
  EXPECT_TRUE(refusal(0)) << "the count is recent";
  timespec old[2] = {{0, UTIME_OMIT}, {clock_.wall().seconds - 1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (maildir_ + "/maildirsize").c_str(), old, 0), 0);
  EXPECT_FALSE(refusal(0));
}

TEST_F(MaildirQuotaTest, NobodyIsRefusedForASumThatIsNoCount) {
  put("cur/1,S=10:2,S", 10);
  write_file("1000S\n500 1\n400 1\n");
  recipient_.user.quota = {1000, 0};
  EXPECT_FALSE(refusal(150)) << "both values leave room";
  EXPECT_EQ(file(), "1000S\n500 1\n400 1\n") << "no count is made";
  EXPECT_FALSE(refusal(300));
  EXPECT_EQ(file(), "1000S\n10 1\n");
  write_file("1000S\n1000 1\n");
  EXPECT_TRUE(refusal(300)) << "the count is recent";
  write_file("1000S\n500 1\n400 1\n");
  EXPECT_EQ(refusal(2000)->enhanced, "5.2.3");
  EXPECT_EQ(file(), "1000S\n500 1\n400 1\n") << "which does not depend on the content";
}

TEST_F(MaildirQuotaTest, AFileThatIsNoneIsReplaced) {
  put("cur/1,S=10:2,S", 10);
  std::ofstream(dir_ + "/elsewhere") << "100000S\n5 5\n";
  std::filesystem::create_symlink(dir_ + "/elsewhere", maildir_ + "/maildirsize");
  EXPECT_EQ(deliver_with(100'000).code, 250);
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(maildir_ + "/maildirsize")));
  EXPECT_EQ(told(), really());
  EXPECT_EQ(test::slurp(dir_ + "/elsewhere"), "100000S\n5 5\n");
}

TEST_F(MaildirQuotaTest, EveryFailingStepLeavesTheSumRight) {
  int step = 0;
  for (;; ++step) {
    std::filesystem::remove_all(dir_ + "/example.org");
    use();
    ASSERT_EQ(deliver_with(100'000).code, 250);
    ASSERT_EQ(deliver().code, 250);
    ops_.clear();
    ops_.fail_at = step;
    Reply reply = deliver();
    ops_.fail_at = -1;
    bool was_last = static_cast<int>(ops_.calls().size()) <= step;
    std::string where = "step " + std::to_string(step) +
                        (was_last ? "" : ": " + ops_.calls().at(static_cast<std::size_t>(step)));
    EXPECT_EQ(really().messages, reply.code == 250 ? 3 : 2) << where;
    EXPECT_TRUE(reply.code == 250 || reply.code == 451) << where << ": " << reply.code;
    EXPECT_FALSE(refusal(0)) << where;  // counts again if there is no file
    EXPECT_EQ(told(), really()) << where;
    for (const std::string& name : test::list(maildir_))
      EXPECT_FALSE(name.starts_with("maildirsize.")) << where << ": " << name;
    if (was_last) break;
  }
  EXPECT_GE(step, 12);
}

TEST_F(MaildirQuotaTest, AFileThatIsReplacedWhileItIsReadIsNotBelieved) {
  put("cur/1,S=400:2,S", 400);
  write_file("700S\n400 1\n");
  ops_.after_read = [&](const std::string& path) {
    if (path != "maildirsize" || std::filesystem::exists(maildir_ + "/cur/2,S=400:2,S")) return;
    put("cur/2,S=400:2,S", 400);
    std::ofstream(maildir_ + "/other") << "700S\n800 2\n0 0\n";
    std::filesystem::rename(maildir_ + "/other", maildir_ + "/maildirsize");
  };
  EXPECT_EQ(deliver_with(700).code, 552);
  ops_.after_read = nullptr;
  EXPECT_EQ(told(), really());
}

// Otherwise many checks of one large mailbox would use all threads.
TEST_F(MaildirQuotaTest, AQuestionDoesNotWaitForSomebodyWhoCounts) {
  put("cur/1,S=400:2,S", 400);
  recipient_.user.quota = {100, 0};
  std::latch counting(1), asked(1);
  std::atomic<bool> first = true;
  ops_.after_list = [&](const std::string&) {
    if (!first.exchange(false)) return;
    counting.count_down();
    asked.wait();
  };
  int code = 0;
  std::thread delivering([&] { code = deliver().code; });
  counting.wait();
  EXPECT_FALSE(refusal(0)) << "the delivery decides";
  asked.count_down();
  delivering.join();
  EXPECT_EQ(code, 552);
  ops_.after_list = nullptr;
  EXPECT_EQ(refusal(0)->code, 552);
}

// A mailbox that takes long to count delays no other mailbox, whatever their number.
TEST_F(MaildirQuotaTest, SomebodyWhoCountsHoldsUpNoStranger) {
  put("cur/1,S=400:2,S", 400);
  recipient_.user.quota = {100, 0};
  std::latch counting(1), done(1);
  std::atomic<bool> first = true;
  ops_.after_list = [&](const std::string&) {
    if (!first.exchange(false)) return;
    counting.count_down();
    done.wait();
  };
  int code = 0;
  std::thread delivering([&, recipient = recipient_] {
    code = agent_
               ->deliver(*spool_->open(), test::make_envelope(), recipient,
                         test::in_memory(test::small_message))
               .reply.code;
  });
  counting.wait();
  Recipient stranger = recipient_;
  stranger.user.quota = {100'000, 0};
  for (int i = 0; i < 300; ++i) {
    stranger.user.maildir = recipient_.user.maildir + "-" + std::to_string(i);
    DeliveryOutcome theirs = agent_->deliver(*spool_->open(), test::make_envelope(), stranger,
                                             test::in_memory(test::small_message));
    EXPECT_EQ(theirs.reply.code, 250) << theirs.detail;
  }
  done.count_down();
  delivering.join();
  EXPECT_EQ(code, 552);
}

// Root can read every directory, so the file operation fails instead.
TEST_F(MaildirQuotaTest, AFolderThatCannotBeReadHoldsUpNoMail) {
  put("cur/1,S=400:2,S", 400);
  put(".Secret/cur/2,S=400:2,S", 400);
  ops_.forbidden = ".Secret/cur";
  EXPECT_EQ(deliver_with(100'000).code, 250);
  EXPECT_FALSE(std::filesystem::exists(maildir_ + "/maildirsize")) << "the known part is not all";
  recipient_.user.quota = {300, 0};
  EXPECT_EQ(MaildirFixture::refusal(1)->code, 451) << "the known part is full";
  EXPECT_EQ(deliver().code, 451);
  ops_.forbidden.clear();
  EXPECT_EQ(deliver().code, 552);
  EXPECT_EQ(deliver_with(100'000).code, 250);
  EXPECT_EQ(told(), really());
}

TEST_F(MaildirQuotaTest, WhatAnotherProcessHasLeftBehindIsNotInTheWay) {
  put("cur/1,S=400:2,S", 400);
  for (int i = 0; i < 3; ++i)
    std::ofstream(maildir_ + "/maildirsize." + std::to_string(::getpid()) + "." + std::to_string(i)) << "old";
  EXPECT_EQ(deliver_with(100'000).code, 250);
  EXPECT_EQ(told(), really());
}

TEST_F(MaildirQuotaTest, FailuresWhileItIsCountedLeaveNothing) {
  for (int step = 0;; ++step) {
    std::filesystem::remove_all(dir_ + "/example.org");
    use();
    ASSERT_EQ(deliver_with(100'000).code, 250);
    std::filesystem::remove(maildir_ + "/maildirsize");
    ops_.clear();
    ops_.fail_at = step;
    Reply reply = deliver();
    ops_.fail_at = -1;
    bool was_last = static_cast<int>(ops_.calls().size()) <= step;
    EXPECT_EQ(really().messages, reply.code == 250 ? 2 : 1) << step;
    for (const std::string& name : test::list(maildir_))
      EXPECT_FALSE(name.starts_with("maildirsize.")) << step << ": " << name;
    EXPECT_FALSE(refusal(0)) << step;
    EXPECT_EQ(told(), really()) << step;
    if (was_last) break;
  }
}

TEST_F(MaildirQuotaTest, DeliveriesAtOnceDoNotShareTheLastRoom) {
  recipient_.user.quota = {0, 10};
  std::atomic<int> taken = 0, refused = 0, put_off = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        Reply reply = agent_
                          ->deliver(*spool_->open(), test::make_envelope(), recipient_,
                                    test::in_memory(test::small_message))
                          .reply;
        if (reply.code == 250) ++taken;
        if (reply.code == 552) ++refused;
        if (reply.code == 451) ++put_off;  // for space that another delivery has reserved
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(taken, 10);
  EXPECT_EQ(refused + put_off, 30);
  EXPECT_EQ(told(), really());
}

TEST_F(MaildirQuotaTest, NobodyIsRefusedForGoodForWhatAnotherMayNotTake) {
  ASSERT_EQ(deliver().code, 250);
  Fd directory(::open(maildir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  QuotaConfig config;
  config.driver = QuotaDriver::maildir;
  MaildirQuota quota(config, ops_, clock_);
  std::string key = "ann";
  MaildirQuota::Mailbox mailbox{directory.get(), key, {0, 2}};
  {
    MaildirQuota::Hold first, second;
    EXPECT_EQ(quota.take(mailbox, 100, first), Room::enough);
    auto beside = quota.take(mailbox, 100, second);
    ASSERT_FALSE(beside);
    EXPECT_EQ(beside.error().code, Errc::exhausted);
    EXPECT_EQ(quota.room(mailbox, 100), Room::enough) << "at RCPT, where nothing is reserved yet";
  }
  MaildirQuota::Hold third;
  EXPECT_EQ(quota.take(mailbox, 100, third), Room::enough);
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(quota.room(mailbox, 100), Room::full);
}

// Dovecot's names: a symbolic link is an alias of a folder (mailbox_alias), and a folder with this name is
// about to be removed.
TEST_F(MaildirQuotaTest, AliasesAndWhatDovecotIsRemovingDoNotCount) {
  put(".Sent/cur/1,S=600", 600);
  put("..DOVECOT-TRASHED/cur/1,S=300", 300);
  std::filesystem::create_directory_symlink(".Sent", maildir_ + "/.Alias");
  recipient_.user.quota = {1000, 0};
  EXPECT_FALSE(refusal(300));
  EXPECT_EQ(told(), (QuotaUsage{600, 1}));
}

TEST_F(MaildirQuotaTest, AFileFromTheFutureIsNotBelieved) {
  put("cur/1,S=10", 10);
  write_file("1000S\n5000 5\n");
  std::filesystem::last_write_time(maildir_ + "/maildirsize",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(24));
  recipient_.user.quota = {1000, 0};
  EXPECT_FALSE(refusal(300));
  EXPECT_EQ(told(), (QuotaUsage{10, 1}));
}

// Mail that is moved during the count may be counted twice. This causes no permanent refusal.
TEST_F(MaildirQuotaTest, ACountThatNeverStoodStillRefusesNothingForGood) {
  put("new/1,S=400", 400);
  put("new/2,S=400", 400);
  std::filesystem::create_directories(maildir_ + "/cur");
  bool back = false;
  ops_.after_list = [&](const std::string& directory) {
    if (!directory.ends_with("/Maildir/new")) return;
    std::filesystem::rename(maildir_ + (back ? "/cur/1,S=400" : "/new/1,S=400"),
                            maildir_ + (back ? "/new/1,S=400" : "/cur/1,S=400"));
    back = !back;
  };
  recipient_.user.quota = {1000, 0};
  auto refused = MaildirFixture::refusal(400);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, 451);
  ASSERT_TRUE(state_.spool);
  EXPECT_NE(state_.spool->message.find("changed during the count"), std::string::npos)
      << state_.spool->message;
  ops_.after_list = nullptr;
  EXPECT_EQ(refusal(400)->code, 552);
  EXPECT_FALSE(refusal(200));
}

TEST_F(MaildirQuotaTest, AFolderThatIsRenamedWhileItIsCountedIsNotMissed) {
  put("new/1,S=10", 10);
  put(".A/cur/1,S=500", 500);
  bool done = false;
  ops_.after_list = [&](const std::string& directory) {
    if (done || !directory.ends_with("/Maildir")) return;
    done = true;
    std::filesystem::rename(maildir_ + "/.A", maildir_ + "/.B");
  };
  recipient_.user.quota = {10'000, 0};
  EXPECT_FALSE(refusal(1));
  EXPECT_TRUE(done);
  EXPECT_EQ(told(), really());
}

TEST_F(MaildirQuotaTest, NamesThatSayImpossibleSizesAddUpToALimit) {
  for (int i = 0; i < 20; ++i) put("cur/" + std::to_string(i) + ",S=1152921504606846976", 1);
  recipient_.user.quota = {1000, 0};
  EXPECT_EQ(refusal(1)->code, 552);
}

// Like Dovecot: counts, then renames a new file over the old one, without a lock that lmtpd knows.
TEST_F(MaildirQuotaTest, SomebodyElseWhoCountsAtTheSameTimeLosesNothingForGood) {
  recipient_.user.quota = {100'000'000, 0};
  ASSERT_EQ(deliver().code, 250);
  std::atomic<bool> ended = false;
  std::thread other([&] {
    while (!ended) {
      QuotaUsage used = parse_maildirsize(file()).value_or(MaildirSize{}).used;
      std::ofstream(maildir_ + "/other") << format_maildirsize(recipient_.user.quota, used);
      ::rename((maildir_ + "/other").c_str(), (maildir_ + "/maildirsize").c_str());
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(deliver().code, 250);
  ended = true;
  other.join();
  EXPECT_EQ(really().messages, 201);
  std::filesystem::remove(maildir_ + "/maildirsize");
  EXPECT_FALSE(refusal(0));
  EXPECT_EQ(told(), really());
}

}  // namespace
}  // namespace twinloft::lmtpd
