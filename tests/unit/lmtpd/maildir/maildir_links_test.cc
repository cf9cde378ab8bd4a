// One file for a message to several users: the recipients, the order of the syncs, and the files that are
// left after a failure.
#include <sys/stat.h>

#include <algorithm>
#include <numeric>

#include "../support/maildir_fixture.h"

namespace twinloft::lmtpd {
namespace {

class MaildirLinksTest : public test::MaildirFixture {
 protected:
  void SetUp() override {
    MaildirFixture::SetUp();
    envelope_ = test::make_envelope();
    for (const char* name : {"ann", "bob", "cay"}) add(name);
  }
  void add(const std::string& name) {
    Recipient r = test::make_recipient(dir_ + "/example.org/" + name);
    r.text = r.user.name = name + "@example.org";
    r.local_part = name;
    envelope_.recipients.push_back(r);
  }
  std::vector<Reply> deliver_all(const std::string& text = test::small_message) {
    std::vector<std::size_t> all(envelope_.recipients.size());
    std::iota(all.begin(), all.end(), 0);
    details_.assign(all.size(), "");
    outcomes_.clear();
    MessageBody body = test::in_memory(text);
    auto handle = spool_->open();
    if (!handle) return std::vector<Reply>(all.size(), {451, "4.3.0", handle.error().message});
    outcomes_ = agent_->deliver_linked(*handle, envelope_, all, body);
    details_.clear();
    std::vector<Reply> replies;
    for (const DeliveryOutcome& outcome : outcomes_) {
      replies.push_back(outcome.reply);
      details_.push_back(outcome.detail);
    }
    return replies;
  }
  std::vector<std::string> entries(std::size_t i, const std::string& folder = "") {
    std::vector<std::string> out;
    std::string directory = envelope_.recipients[i].user.maildir + folder + "/new";
    for (const std::string& name : test::list(directory)) out.push_back(directory + "/" + name);
    return out;
  }
  static struct stat about(const std::string& path) {
    struct stat out{};
    EXPECT_EQ(::stat(path.c_str(), &out), 0) << path;
    return out;
  }
  void expect_no_rest() {
    for (const Recipient& r : envelope_.recipients)
      EXPECT_TRUE(test::list(r.user.maildir + "/tmp").empty()) << r.text;
  }
  // The first call fails, then the second, and so on, until all calls have failed once.
  void fail_every_step(DurabilityWay durability, bool quota) {
    for (int step = 0;; ++step) {
      std::filesystem::remove_all(dir_ + "/example.org");
      QuotaConfig counted;
      counted.driver = quota ? QuotaDriver::maildir : QuotaDriver::none;
      use_spool(dir_, durability, {}, counted);
      for (Recipient& r : envelope_.recipients) r.user.quota.bytes = 1'000'000;
      ops_.clear();
      ops_.fail_at = step;
      std::vector<Reply> replies = deliver_all();
      ops_.fail_at = -1;
      bool all = true;
      for (std::size_t i = 0; i < replies.size(); ++i) {
        std::string where = "step " + std::to_string(step) + ", recipient " + std::to_string(i) + ": " +
                            details_[i];
        bool taken = replies[i].code == 250;
        EXPECT_TRUE(taken || replies[i].code == 451) << where;
        EXPECT_EQ(entries(i).size(), taken ? 1u : 0u) << where;
        all &= taken;
      }
      expect_no_rest();
      auto calls = std::ranges::count_if(
          ops_.calls(), [](const std::string& call) { return !call.starts_with("unlink "); });
      if (all && calls <= step) {
        EXPECT_GE(step, 12);
        return;
      }
      for (const Reply& reply : deliver_all()) EXPECT_EQ(reply.code, 250) << "after step " << step;
    }
  }

  Envelope envelope_;
  std::vector<DeliveryOutcome> outcomes_;  // of the last message
  std::vector<std::string> details_;       // of the same outcomes
};

TEST_F(MaildirLinksTest, OneFileHasANameInEachMaildir) {
  for (const Reply& reply : deliver_all()) EXPECT_EQ(reply.code, 250);
  ASSERT_EQ(entries(0).size(), 1u);
  struct stat first = about(entries(0)[0]);
  EXPECT_EQ(first.st_nlink, 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(outcomes_[i].path, entries(i)[0]);
    EXPECT_EQ(outcomes_[i].bytes, static_cast<std::uint64_t>(first.st_size));
    EXPECT_EQ(outcomes_[i].durable, MadeDurable::fsync);
  }
  for (std::size_t i : {1u, 2u}) {
    ASSERT_EQ(entries(i).size(), 1u);
    EXPECT_EQ(about(entries(i)[0]).st_ino, first.st_ino);
    EXPECT_NE(std::filesystem::path(entries(i)[0]).filename(),
              std::filesystem::path(entries(0)[0]).filename());
  }
  std::string text = test::slurp(entries(0)[0]);
  EXPECT_NE(entries(0)[0].find(",S=" + std::to_string(text.size()) + ","), std::string::npos);
  EXPECT_TRUE(text.starts_with("Return-Path: <sender@example.com>\nReceived: from ")) << text;
  for (const char* no : {"Delivered-To", "ann@", "bob@", "cay@", "\tfor "})
    EXPECT_EQ(text.find(no), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\nFrom: a@example.com\nSubject: hello\n\nFirst line\nSecond\n"));
  expect_no_rest();
}

TEST_F(MaildirLinksTest, TheFileIsDurableFirstThenEveryEntry) {
  deliver_all();
  ops_.clear();
  deliver_all();
  std::vector<std::string> order;
  for (const std::string& call : ops_.calls())
    if (!call.starts_with("open ")) order.push_back(call);
  std::string ann = "/example.org/ann/Maildir", bob = "/example.org/bob/Maildir",
              cay = "/example.org/cay/Maildir";
  EXPECT_EQ(order, (std::vector<std::string>{
                       "create " + ann + "/tmp/FILE", "write", "fsync " + ann + "/tmp/FILE",
                       "link " + ann + "/tmp " + ann + "/new", "link " + ann + "/tmp " + bob + "/new",
                       "link " + ann + "/tmp " + cay + "/new", "fsync " + ann + "/new",
                       "fsync " + bob + "/new", "fsync " + cay + "/new", "unlink " + ann + "/tmp/FILE"}));
}

// The names of a shared file are links, which need a first name.
TEST_F(MaildirLinksTest, WithDataFirstTheSharedFileIsInTmp) {
  data_first_ = true;
  for (const Reply& reply : deliver_all()) EXPECT_EQ(reply.code, 250);
  const std::string ann = "/example.org/ann/Maildir";
  const std::size_t written = ops_.at("write back " + ann + "/tmp/FILE");
  EXPECT_LT(written, ops_.at("link " + ann + "/tmp " + ann + "/new"));
  EXPECT_EQ(ops_.at("create unnamed " + ann + "/new"), std::string::npos);
  EXPECT_EQ(about(entries(0)[0]).st_nlink, 3u);
}

TEST_F(MaildirLinksTest, GroupSyncNeedsTwoForAll) {
  use_spool(dir_, DurabilityWay::group_sync);
  deliver_all();
  ops_.clear();
  deliver_all();
  EXPECT_EQ(std::ranges::count(ops_.calls(), "syncfs"), 2);
  std::size_t file = ops_.at("syncfs"),
              last_link = ops_.at("link /example.org/ann/Maildir/tmp /example.org/cay/Maildir/new");
  EXPECT_LT(file, ops_.at("link /example.org/ann/Maildir/tmp /example.org/ann/Maildir/new"));
  EXPECT_GT(ops_.at("syncfs", last_link), last_link);
}

TEST_F(MaildirLinksTest, ParentsOfNewMaildirsAreSyncedToo) {
  deliver_all();
  std::size_t linked = ops_.at("link /example.org/ann/Maildir/tmp /example.org/cay/Maildir/new");
  for (const char* directory : {"/example.org/ann/Maildir", "/example.org/bob/Maildir",
                                "/example.org/cay/Maildir", "/example.org/cay", "/example.org", ""})
    EXPECT_NE(ops_.at(std::string("fsync ") + directory, linked), std::string::npos) << directory;
}

TEST_F(MaildirLinksTest, EveryFailingStepIsA451ForThoseWhoHaveNothing) {
  fail_every_step(DurabilityWay::fsync, false);
}
TEST_F(MaildirLinksTest, AlsoWithGroupSync) {
  fail_every_step(DurabilityWay::group_sync, false);
}
TEST_F(MaildirLinksTest, AlsoWithDataFirst) {
  data_first_ = true;
  fail_every_step(DurabilityWay::fsync, false);
}
TEST_F(MaildirLinksTest, AlsoWithQuota) {
  fail_every_step(DurabilityWay::fsync, true);
}

TEST_F(MaildirLinksTest, WhereNoLinkCanBeMadeEachHasAFile) {
  for (int error : {EMLINK, EXDEV, EPERM, EOPNOTSUPP}) {
    std::filesystem::remove_all(dir_ + "/example.org");
    ops_.link_error = error;
    for (const Reply& reply : deliver_all()) EXPECT_EQ(reply.code, 250) << error;
    for (std::size_t i : {0u, 1u, 2u}) {
      ASSERT_EQ(entries(i).size(), 1u) << error;
      EXPECT_EQ(about(entries(i)[0]).st_nlink, 1u);
      EXPECT_NE(test::slurp(entries(i)[0]).find("Delivered-To: " + envelope_.recipients[i].text + "\n"),
                std::string::npos);
    }
    expect_no_rest();
  }
  ops_.link_error = ENOSPC;
  for (const Reply& reply : deliver_all()) EXPECT_EQ(reply.code, 452);
}

TEST_F(MaildirLinksTest, EachIsRefusedForThemselves) {
  QuotaConfig quota;
  quota.driver = QuotaDriver::maildir;
  use_spool(dir_, DurabilityWay::fsync, {}, quota);
  add("dan");
  envelope_.recipients[0].user.quota.bytes = 10;  // the user whose tmp/ would hold the file
  envelope_.recipients[1].user.uid += 1;
  envelope_.recipients[3].user.maildir = "/elsewhere/Maildir";
  auto replies = deliver_all();
  EXPECT_EQ(replies[0].enhanced, "5.2.3");
  EXPECT_EQ(replies[1].enhanced, "4.3.5");
  EXPECT_EQ(replies[2].code, 250);
  EXPECT_EQ(replies[3].enhanced, "4.3.5");
  EXPECT_TRUE(entries(0).empty());
  EXPECT_EQ(entries(2).size(), 1u);
  EXPECT_TRUE(test::list(envelope_.recipients[0].user.maildir + "/tmp").empty());
  std::string counted = test::slurp(envelope_.recipients[2].user.maildir + "/maildirsize");
  EXPECT_EQ(counted, "");  // the use was not counted, since no delivery has needed it
}

TEST_F(MaildirLinksTest, QuotaCountsInEachMailbox) {
  QuotaConfig quota;
  quota.driver = QuotaDriver::maildir;
  use_spool(dir_, DurabilityWay::fsync, {}, quota);
  for (Recipient& r : envelope_.recipients) r.user.quota.messages = 2;
  for (int i = 0; i < 2; ++i)
    for (const Reply& reply : deliver_all()) EXPECT_EQ(reply.code, 250);
  for (const Reply& reply : deliver_all()) EXPECT_EQ(reply.enhanced, "5.2.2");
  for (std::size_t i : {0u, 1u, 2u}) EXPECT_EQ(entries(i).size(), 2u);
}

TEST_F(MaildirLinksTest, OneWhoIsNamedTwiceHasItTwice) {
  envelope_.recipients[1] = envelope_.recipients[0];
  for (const Reply& reply : deliver_all()) EXPECT_EQ(reply.code, 250);
  EXPECT_EQ(entries(0).size(), 2u);
}

TEST_F(MaildirLinksTest, FoldersByDetail) {
  use_spool(dir_, DurabilityWay::fsync, {.detail = FoldersByDetail::create});
  envelope_.recipients[1].detail = "Lists";
  for (const Reply& reply : deliver_all()) EXPECT_EQ(reply.code, 250);
  ASSERT_EQ(entries(1, "/.Lists").size(), 1u);
  EXPECT_EQ(about(entries(1, "/.Lists")[0]).st_ino, about(entries(0)[0]).st_ino);
  EXPECT_NE(details_[1].find("Lists"), std::string::npos) << details_[1];
}

TEST_F(MaildirLinksTest, LoopsAreFoundByWhoItWasDeliveredToAndByThisHost) {
  auto replies = deliver_all(std::string("Delivered-To: bob@example.org\r\n") + test::small_message);
  EXPECT_EQ(replies[0].code, 250);
  EXPECT_EQ(replies[1].code, 554);
  EXPECT_EQ(replies[2].code, 250);
  std::string passes;
  for (int i = 0; i < 11; ++i)
    passes += "Received: from a (b)\r\n\tby mail.example.org with LMTP id x; y\r\n";
  for (const Reply& reply : deliver_all(passes + test::small_message)) EXPECT_EQ(reply.enhanced, "5.4.6");
}

}  // namespace
}  // namespace twinloft::lmtpd
