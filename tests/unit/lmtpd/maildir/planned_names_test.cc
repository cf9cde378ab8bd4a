// What the agent tells the way of durability: the plan, the bytes, the planned names, and which of them do
// not appear.
#include <numeric>

#include "../support/maildir_fixture.h"

namespace twinloft::lmtpd {
namespace {

// A way that only records. `fail`: the call that fails.
struct Told {
  bool keeps = false;
  std::string fail;
  std::function<void(std::size_t)> at_withdraw;  // called with the index
  std::vector<std::string> calls;
  std::vector<MessagePlan> plans;
  std::vector<std::string> contents;
  std::vector<PlannedName> names;  // of the last message

  Status call(const std::string& what) {
    calls.push_back(what);
    return what == fail ? Status(fail_errno(EIO, "injected failure of {}", what)) : Status{};
  }
};

class ToldMessage final : public DurableMessage {
 public:
  explicit ToldMessage(Told& told) : told_(told) {}
  DurabilityWay way() const override { return DurabilityWay::fsync; }
  bool may_be_unnamed() const override { return false; }
  bool keeps_content() const override { return told_.keeps; }
  Status content(int, const PlannedMessage& planned) override {
    told_.contents.emplace_back(planned.content);
    told_.names.assign(planned.names.begin(), planned.names.end());
    return told_.call("content");
  }
  Status entry(std::size_t index, const NewEntry&) override {
    return told_.call(fmt::format("entry {}", index));
  }
  Status withdraw(std::size_t index) override {
    if (told_.at_withdraw) told_.at_withdraw(index);
    return told_.call(fmt::format("withdraw {}", index));
  }

 private:
  Told& told_;
};

class ToldWay final : public Durability {
 public:
  explicit ToldWay(Told& told) : told_(told) {}
  DurabilityWay way() const override { return DurabilityWay::fsync; }
  std::unique_ptr<DurableMessage> begin(const SpoolHandle&, const MessagePlan& plan) override {
    told_.plans.push_back(plan);
    (void)told_.call("begin");
    return std::make_unique<ToldMessage>(told_);
  }

 private:
  Told& told_;
};

using Calls = std::vector<std::string>;

class PlannedNamesTest : public test::MaildirFixture {
 protected:
  void SetUp() override {
    MaildirFixture::SetUp();
    use();
    told_.at_withdraw = [this](std::size_t i) {
      const PlannedName& name = told_.names.at(i);
      EXPECT_FALSE(std::filesystem::exists(file_of(name))) << "a withdrawn name is not in new/";
    };
  }
  void use(QuotaConfig quota = {}) {
    MaildirConfig config{.hostname = "mail.example.org"};
    config.folders.detail = FoldersByDetail::create;
    config.quota = std::move(quota);
    agent_ = std::make_unique<MaildirAgent>(std::move(config), *spool_, std::make_unique<ToldWay>(told_),
                                            ops_, clock_);
  }
  std::string file_of(const PlannedName& name) const {
    return fmt::format("{}/{}/{}/new/{}", dir_, name.maildir, name.folder, name.name);
  }
  void forget() {
    told_.calls.clear();
    told_.plans.clear();
    told_.contents.clear();
    ops_.clear();
  }
  // To ann, bob and cay, with one file.
  std::vector<DeliveryOutcome> deliver_linked(std::uint64_t bytes_of_bob = 0) {
    Envelope envelope = test::make_envelope();
    for (const char* name : {"ann", "bob", "cay"}) {
      envelope.recipients.push_back(test::make_recipient(dir_ + "/example.org/" + name));
      envelope.recipients.back().text = std::string(name) + "@example.org";
    }
    envelope.recipients[1].user.quota.bytes = bytes_of_bob;
    std::vector<std::size_t> all{0, 1, 2};
    return agent_->deliver_linked(*spool_->open(), envelope, all, test::in_memory(test::small_message));
  }
  std::size_t messages(const std::string& user) {
    return test::list(dir_ + "/example.org/" + user + "/Maildir/new").size();
  }

  Told told_;
};

TEST_F(PlannedNamesTest, ThePlanTheBytesAndTheNameAreThoseOfTheFile) {
  told_.keeps = true;
  recipient_.detail = "Lists";
  for (bool first : {true, false}) {
    forget();
    ASSERT_EQ(deliver().code, 250) << detail_;
    EXPECT_EQ(told_.calls, (Calls{"begin", "content", "entry 0"}));
    EXPECT_EQ(told_.plans[0].new_directories, first);
    EXPECT_EQ(told_.names[0].maildir, "example.org/ann/Maildir");
    EXPECT_EQ(told_.names[0].folder, ".Lists");
    std::string text = test::slurp(file_of(told_.names[0]));
    EXPECT_NE(text, "");
    EXPECT_EQ(told_.contents[0], text);
    EXPECT_GE(told_.plans[0].bytes_max, text.size());
    EXPECT_LE(told_.plans[0].bytes_max, text.size() + std::string_view(test::small_message).size());
  }
}

TEST_F(PlannedNamesTest, ALargeMessageIsKeptWhole) {
  told_.keeps = true;
  std::string text = "Subject: large\r\n\r\n";
  while (text.size() < 1'000'000) text += "0123456789012345678901234567890123456789\r\n";
  ASSERT_EQ(deliver(test::in_file(text)).code, 250);
  EXPECT_TRUE(told_.contents[0] == test::slurp(file_of(told_.names[0])));
}

TEST_F(PlannedNamesTest, BytesThatTheWayDoesNotWantAreNotKept) {
  ASSERT_EQ(deliver().code, 250);
  EXPECT_EQ(told_.contents, Calls{""});
}

TEST_F(PlannedNamesTest, TheWayIsAskedBeforeTheFirstWrite) {
  std::size_t began = 0;
  ops_.before = [&](const std::string& step) {
    if (step.starts_with("create ") || step == "write") began += told_.plans.size();
  };
  ASSERT_EQ(deliver().code, 250);
  (void)deliver_linked();
  EXPECT_EQ(began, 2u + 2 * 2u);  // a create and a write of each file
}

// Before content() the way knows no name. From then on each failure withdraws the name once.
TEST_F(PlannedNamesTest, EachFailureAfterTheContentWithdrawsTheName) {
  ASSERT_EQ(deliver().code, 250);
  for (const char* call : {"content", "entry 0"}) {
    forget();
    told_.fail = call;
    EXPECT_EQ(deliver().code, 451);
    EXPECT_EQ(told_.calls.back(), "withdraw 0") << call;
    EXPECT_EQ(std::ranges::count(told_.calls, "withdraw 0"), 1);
  }
  told_.fail.clear();
  ops_.clear();
  int withdrawn = 0;
  for (int step = 0;; ++step) {
    forget();
    ops_.fail_at = step;
    if (deliver().code == 250) break;
    const bool planned = std::ranges::count(told_.calls, "content") > 0;
    EXPECT_EQ(std::ranges::count(told_.calls, "withdraw 0"), planned ? 1 : 0) << detail_;
    withdrawn += planned;
  }
  EXPECT_EQ(withdrawn, 1);  // the rename
}

TEST_F(PlannedNamesTest, AFailedWithdrawalIsInTheReason) {
  told_.at_withdraw = [this](std::size_t) { told_.fail = "withdraw 0"; };
  told_.fail = "entry 0";
  EXPECT_EQ(deliver().code, 451);
  EXPECT_NE(detail_.find("failure of entry 0"), std::string::npos) << detail_;
  EXPECT_NE(detail_.find("bring the undelivered message back"), std::string::npos) << detail_;
  EXPECT_EQ(messages("ann"), 0u);
}

TEST_F(PlannedNamesTest, EachRecipientOfASharedFileIsAPlannedName) {
  told_.keeps = true;
  for (const DeliveryOutcome& outcome : deliver_linked()) EXPECT_EQ(outcome.reply.code, 250);
  EXPECT_EQ(told_.calls, (Calls{"begin", "content", "entry 0", "entry 1", "entry 2"}));
  ASSERT_EQ(told_.names.size(), 3u);
  EXPECT_EQ(told_.names[2].maildir, "example.org/cay/Maildir");
  for (const PlannedName& name : told_.names) EXPECT_EQ(test::slurp(file_of(name)), told_.contents[0]);
  EXPECT_TRUE(told_.plans[0].new_directories);
  forget();
  (void)deliver_linked();
  EXPECT_FALSE(told_.plans[0].new_directories);
}

TEST_F(PlannedNamesTest, ARecipientWithoutRoomIsNotPlanned) {
  QuotaConfig quota;
  quota.driver = QuotaDriver::maildir;
  use(quota);
  auto outcomes = deliver_linked(10);
  EXPECT_EQ(outcomes[1].reply.enhanced, "5.2.3");
  EXPECT_EQ(told_.calls, (Calls{"begin", "content", "entry 0", "entry 1"}));
  EXPECT_EQ(told_.names[1].maildir, "example.org/cay/Maildir");
  EXPECT_EQ(outcomes[2].reply.code, 250);
}

TEST_F(PlannedNamesTest, OneFailedEntryWithdrawsThatNameOnly) {
  told_.fail = "entry 1";
  auto outcomes = deliver_linked();
  EXPECT_EQ(outcomes[1].reply.code, 451);
  EXPECT_EQ(told_.calls, (Calls{"begin", "content", "entry 0", "entry 1", "withdraw 1", "entry 2"}));
  EXPECT_EQ(messages("ann") + messages("cay"), 2u);
}

TEST_F(PlannedNamesTest, AFailedContentWithdrawsAllNames) {
  told_.fail = "content";
  for (const DeliveryOutcome& outcome : deliver_linked()) EXPECT_EQ(outcome.reply.code, 451);
  EXPECT_EQ(told_.calls, (Calls{"begin", "content", "withdraw 0", "withdraw 1", "withdraw 2"}));
}

// Else the way could bring the shared file's name back beside the recipient's own file.
TEST_F(PlannedNamesTest, AnOwnFileInsteadOfALinkIsWrittenAfterTheWithdrawal) {
  ops_.link_error = EMLINK;
  told_.at_withdraw = {};
  for (const DeliveryOutcome& outcome : deliver_linked()) EXPECT_EQ(outcome.reply.code, 250);
  EXPECT_EQ(told_.calls, (Calls{"begin", "content",                           //
                                "withdraw 0", "begin", "content", "entry 0",  //
                                "withdraw 1", "begin", "content", "entry 0",  //
                                "withdraw 2", "begin", "content", "entry 0"}));
  told_.fail = "withdraw 1";
  auto outcomes = deliver_linked();
  EXPECT_EQ(outcomes[1].reply.code, 451);
  EXPECT_NE(outcomes[1].detail.find("bring the undelivered message back"), std::string::npos);
  EXPECT_EQ(messages("bob"), 1u);
  EXPECT_EQ(messages("cay"), 2u);
}

TEST_F(PlannedNamesTest, ALinkThatCannotBeMadeIsWithdrawn) {
  ops_.link_error = ENOSPC;
  for (const DeliveryOutcome& outcome : deliver_linked()) EXPECT_EQ(outcome.reply.code, 452);
  EXPECT_EQ(told_.calls, (Calls{"begin", "content", "withdraw 0", "withdraw 1", "withdraw 2"}));
}

}  // namespace
}  // namespace twinloft::lmtpd
