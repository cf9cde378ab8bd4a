// From an address to the verdict, with the answers of a user database and a mailbox.
#include "twinloft/lmtpd/policy/recipient.h"

#include <gtest/gtest.h>

#include "twinloft/lmtpd/proto/path.h"

namespace twinloft::lmtpd {
namespace {

User limited_user(std::string name = "ann") {
  User user;
  user.name = std::move(name);
  user.uid = user.gid = 5000;
  user.home = user.maildir = "/srv/mail/ann";
  user.quota.bytes = 1000;
  return user;
}

struct RecipientTest : testing::Test {
  RecipientRules rules{.has_limits = [](const User& user) { return !user.quota.unlimited(); }};
  KnownRecipient recipient;
  WayRefuses way;

  LookupRequest named(std::string_view address) {
    Path path = parse_address(address).value();
    name_recipient(path, rules, recipient);
    return lookup_of(path, rules);
  }
  JudgedUser found(User user) { return judge_user(recipient, Resolved{std::move(user)}, 300, rules, way); }
  static int code_of(const JudgedUser& judged) {
    const Refuse* no = std::get_if<Refuse>(&judged);
    return no ? no->reply.code : 0;
  }
};

TEST_F(RecipientTest, TheDetailIsSplitOff) {
  LookupRequest request = named("ann+lists.dev@Example.org");
  EXPECT_EQ(request.local_part, "ann");
  EXPECT_EQ(request.detail, "lists.dev");
  EXPECT_EQ(request.domain, "example.org");
  EXPECT_EQ(recipient.text, "ann+lists.dev@Example.org");
  rules.detail_delimiter = "";
  EXPECT_EQ(named("ann+lists@example.org").local_part, "ann+lists");
}

TEST_F(RecipientTest, AUserWithLimitsNeedsALookAtTheMailbox) {
  named("ann+lists@example.org");
  JudgedUser judged = found(limited_user());
  const MailboxQuestion* question = std::get_if<MailboxQuestion>(&judged);
  ASSERT_TRUE(question);
  EXPECT_EQ(question->user.name, "ann");
  EXPECT_EQ(question->detail, "lists");
  EXPECT_EQ(question->size, 300u);
  EXPECT_EQ(judge_mailbox(recipient, {}, rules, way), Verdict(Accept{}));
  Verdict full = judge_mailbox(recipient, {.room = Room::full}, rules, way);
  EXPECT_EQ(std::get<Refuse>(full).reply.code, 552);
}

TEST_F(RecipientTest, AUserWithoutLimitsIsAcceptedAtOnce) {
  named("ann@example.org");
  User user = limited_user();
  user.quota = {};
  EXPECT_TRUE(std::holds_alternative<Accept>(found(user)));
}

TEST_F(RecipientTest, NoUserAndNoDatabase) {
  named("eve@example.org");
  EXPECT_EQ(code_of(judge_user(recipient, std::nullopt, 0, rules, way)), 550);
  EXPECT_EQ(code_of(judge_user(recipient, fail(Errc::unavailable, "away"), 0, rules, way)), 451);
}

// No question about the mailbox is asked of a spool that hangs.
TEST_F(RecipientTest, TheSpoolIsAskedBeforeTheMailbox) {
  rules.spool_refusal = [](const User& user) -> std::optional<Reply> {
    if (!user.next_hop.empty()) return std::nullopt;
    return make_reply(451, "4.3.1", "The mail spool has failed, try again later");
  };
  named("ann@example.org");
  EXPECT_EQ(code_of(found(limited_user())), 451);
  User user = limited_user();
  user.next_hop = "other";
  EXPECT_TRUE(std::holds_alternative<MailboxQuestion>(found(user)));
  user.state = UserState::disabled;
  EXPECT_EQ(code_of(found(user)), 550);
}

TEST_F(RecipientTest, TheWayOfDeliveryIsAskedLast) {
  int asked = 0;
  way = [&]() -> std::optional<Reply> {
    ++asked;
    return make_reply(550, "5.7.1", "no");
  };
  named("ann@example.org");
  EXPECT_TRUE(std::holds_alternative<MailboxQuestion>(found(limited_user())));
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(std::get<Refuse>(judge_mailbox(recipient, {}, rules, way)).reply.code, 550);
  EXPECT_EQ(asked, 1);
}

TEST_F(RecipientTest, AnAliasMayChangeTheDetail) {
  named("lists@example.org");
  User user = limited_user();
  user.quota = {};
  EXPECT_TRUE(std::holds_alternative<Accept>(
      judge_user(recipient, Resolved{std::move(user), "folder"}, 0, rules, way)));
  EXPECT_EQ(recipient.detail, "folder");
}

TEST_F(RecipientTest, AUserWithoutUtf8GetsAnAsciiDomain) {
  rules.takes_utf8 = [](const User&) { return false; };
  named("ann@bücher.example");
  User user = limited_user();
  user.quota = {};
  EXPECT_TRUE(std::holds_alternative<Accept>(found(user)));
  EXPECT_EQ(recipient.text, "ann@xn--bcher-kva.example");
  named("änn@bücher.example");
  EXPECT_EQ(code_of(found(user)), 553);
}

}  // namespace
}  // namespace twinloft::lmtpd
