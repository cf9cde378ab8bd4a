// The built-in agent with a failure at each step, and with a full disk.
#include "../support/maildir_fixture.h"

namespace twinloft::lmtpd {
namespace {

class MaildirFaultTest : public test::MaildirFixture {
 protected:
  void expect_nothing_left(const std::string& where) {
    EXPECT_TRUE(test::list(maildir_ + "/tmp").empty()) << where;
    EXPECT_TRUE(test::list(maildir_ + "/new").empty()) << where;
  }

  // The first call fails, then the second, and so on, until all calls have failed once.
  void fail_every_step(DurabilityWay durability, bool new_maildir) {
    int step = 0;
    for (;; ++step) {
      std::filesystem::remove_all(dir_ + "/example.org");
      use_spool(dir_, durability);
      ops_.fail_at = -1;
      if (!new_maildir) {
        ASSERT_EQ(deliver().code, 250);
        for (const auto& name : test::list(maildir_ + "/new"))
          std::filesystem::remove(maildir_ + "/new/" + name);
      }
      ops_.clear();
      ops_.fail_at = step;
      Reply reply = deliver();
      if (reply.code == 250) break;
      std::string where = "step " + std::to_string(step) + ": " +
                          ops_.calls().at(static_cast<std::size_t>(step));
      EXPECT_EQ(reply.code, 451) << where;
      expect_nothing_left(where);
      // The user is not blocked: the next delivery works.
      ops_.fail_at = -1;
      EXPECT_EQ(deliver().code, 250) << where << ": " << detail_;
    }
    EXPECT_GE(step, 8);  // as many steps as in maildir_test: none was skipped
    EXPECT_EQ(test::list(maildir_ + "/new").size(), 1u);
  }
};

TEST_F(MaildirFaultTest, EveryFailingStepIsA451AndLeavesNothing) {
  fail_every_step(DurabilityWay::fsync, false);
}
TEST_F(MaildirFaultTest, AlsoWithDataFirst) {
  data_first_ = true;
  fail_every_step(DurabilityWay::fsync, false);
  EXPECT_NE(ops_.at("link unnamed /example.org/ann/Maildir/new"), std::string::npos);
}
TEST_F(MaildirFaultTest, AlsoInANewMaildir) {
  fail_every_step(DurabilityWay::fsync, true);
}
TEST_F(MaildirFaultTest, AlsoWithGroupSync) {
  fail_every_step(DurabilityWay::group_sync, false);
}

// The mail user may have no right to detect the failed file system by the spool's root.
TEST_F(MaildirFaultTest, AfterAGroupsSyncTheMessagesOwnFileAndDirectoryAreLookedAt) {
  use_spool(dir_, DurabilityWay::group_sync);
  ASSERT_EQ(deliver().code, 250);
  ops_.clear();
  ASSERT_EQ(deliver().code, 250);
  std::vector<std::string> order;
  for (const std::string& call : ops_.calls())
    if (call == "syncfs" || call == "look" || call.starts_with("rename"))
      order.push_back(call.substr(0, call.find(' ')));
  EXPECT_EQ(order, (std::vector<std::string>{"syncfs", "look", "rename", "syncfs", "look"}));
}

TEST_F(MaildirFaultTest, AFailedNewMaildirIsSyncedByTheNextDelivery) {
  // The parents exist after the first attempt, but they may not be durable.
  for (int step = 0; ops_.at("fsync /example.org") == std::string::npos; ++step) {
    ASSERT_LT(step, 100);
    std::filesystem::remove_all(dir_ + "/example.org");
    use_spool(dir_);
    ops_.clear();
    ops_.fail_at = step;
    (void)deliver();
  }
  ASSERT_TRUE(std::filesystem::is_directory(maildir_));
  ops_.clear();
  ops_.fail_at = -1;
  ASSERT_EQ(deliver().code, 250);
  EXPECT_NE(ops_.at("fsync /example.org"), std::string::npos);
  EXPECT_NE(ops_.at("fsync "), std::string::npos);  // the root is synced
}

TEST_F(MaildirFaultTest, SaysNoSpaceAndOverQuota) {
  ASSERT_EQ(deliver().code, 250);
  ops_.clear();
  ASSERT_EQ(deliver().code, 250);
  int write = static_cast<int>(ops_.at("write"));
  for (auto [sys, code, enhanced] :
       {std::tuple{ENOSPC, 452, "4.3.1"}, {EDQUOT, 452, "4.2.2"}, {EIO, 451, "4.3.0"}}) {
    ops_.clear();
    ops_.fail_at = write;
    ops_.fail_with = sys;
    Reply reply = deliver();
    EXPECT_EQ(reply.code, code);
    EXPECT_EQ(reply.enhanced, enhanced);
  }
  EXPECT_EQ(test::list(maildir_ + "/new").size(), 2u);
  EXPECT_TRUE(test::list(maildir_ + "/tmp").empty());
}

TEST_F(MaildirFaultTest, AFullDiskIs452AndTheSmallMessageStillFits) {
  ASSERT_TRUE(test::is_root()) << "mounting needs root";
  become_root();
  std::string at = path("mnt");
  mount_tmpfs(at, "size=256k,mode=777");
  use_spool(at);
  become_mail_user();
  std::string large = "Subject: large\r\n\r\n" + std::string(1'000'000, 'x') + "\r\n";
  Reply reply = deliver(test::in_memory(large));
  EXPECT_EQ(reply.code, 452) << detail_;
  EXPECT_EQ(reply.enhanced, "4.3.1");
  expect_nothing_left("full disk");
  EXPECT_EQ(deliver().code, 250) << detail_;
}

TEST_F(MaildirFaultTest, ADirectoryThatCannotBeWrittenIsOurConfiguration) {
  ASSERT_TRUE(test::is_root()) << "needs a second user";
  become_root();
  ASSERT_EQ(::chown(dir_.c_str(), 0, 0), 0);
  become_mail_user();
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.5");
  EXPECT_NE(detail_.find("example.org"), std::string::npos) << detail_;
}

TEST_F(MaildirFaultTest, TheKernelIsReallyAskedToSync) {
  OsFileOps os;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  Status file = os.sync_file(read_end.get());  // fsync(2): EINVAL for a file that cannot be synced
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().sys, EINVAL);
  Fd only_a_path(::open(dir_.c_str(), O_PATH | O_CLOEXEC));
  Status all = os.sync_file_system(only_a_path.get());  // syncfs(2): EBADF
  ASSERT_FALSE(all.has_value());
  EXPECT_EQ(all.error().sys, EBADF);
}

TEST_F(MaildirFaultTest, RenameNeverReplacesAMessage) {
  OsFileOps os;
  Fd dir = os.open_root(dir_).value();
  std::ofstream(path("a")) << "new";
  std::ofstream(path("b")) << "old";
  Status renamed = os.rename(dir.get(), "a", dir.get(), "b");
  ASSERT_FALSE(renamed.has_value());
  EXPECT_EQ(renamed.error().sys, EEXIST);
  EXPECT_EQ(test::slurp(path("b")), "old");
}

}  // namespace
}  // namespace twinloft::lmtpd
