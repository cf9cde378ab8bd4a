// What spool-milter answers, as tables.
#include "twinloft/spool-milter/core/answer.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "people.h"
#include "twinloft/lmtpd/policy/spool_health.h"

namespace twinloft::spool_milter {
namespace {

using namespace lmtpd;

Sender mail(std::vector<std::string_view> words, std::string_view auth_authen = "") {
  return read_mail(words, auth_authen);
}

TEST(ReadMail, SizeAndSmtputf8OfTheArguments) {
  EXPECT_EQ(mail({"<a@example.net>", "SIZE=123", "SMTPUTF8"}),
            (Sender{.address = "a@example.net", .size = 123, .smtputf8 = true}));
  EXPECT_EQ(mail({"<a@example.net>", "size=123", "Smtputf8", "BODY=8BITMIME"}),
            (Sender{.address = "a@example.net", .size = 123, .smtputf8 = true}));
  EXPECT_EQ(mail({"<>"}), Sender{});
  EXPECT_EQ(mail({"a@example.net"}).address, "a@example.net");
  EXPECT_EQ(mail({}), Sender{});
}

TEST(ReadMail, WrongValuesAreIgnoredBecauseNoSenderIsRefused) {
  for (std::string_view wrong : {"SIZE=", "SIZE=-1", "SIZE=12x", "SIZE", "SIZES=5", "SMTPUTF8=1"})
    EXPECT_EQ(mail({"<a@example.net>", wrong}), Sender{.address = "a@example.net"}) << wrong;
  EXPECT_EQ(mail({"<a@example.net>", "SIZE=99999999999999999999999"}).size, UINT64_MAX);
  EXPECT_EQ(mail({"<unclosed"}), Sender{});
}

TEST(ReadMail, TheMacroSaysWhetherTheSenderIsAuthenticated) {
  EXPECT_TRUE(mail({"<a@example.net>"}, "ann").authenticated);
  EXPECT_FALSE(mail({"<a@example.net>"}, "").authenticated);
}

struct AnswerTest : testing::Test {
  Rules rules{.scope = {.domains = {"example.org"}, .mailers = {"lmtp"}, .hosts = {}},
              .recipients = people_rules()};
  Facts facts{.look_up = look_up, .look = look, .spool_refuses = {}, .spool_waits = {}, .way_refuses = {}};
  Sender sender{.address = "s@example.net"};
  SpoolHealth health;
  Instant now{3'600'000'000'000};

  std::string to(std::string_view word, std::string_view mailer = "", std::string_view host = "") {
    auto reply = answer(sender, {word, mailer, host}, rules, facts);
    return reply ? fmt::format("{} {}", reply->code, reply->enhanced) : "continue";
  }
  void watch_spool() {
    facts.spool_refuses = [this](const User& user, bool authenticated) -> std::optional<Reply> {
      if (!user.next_hop.empty()) return std::nullopt;
      return refusal_of_spool(health, SpoolRules{}, now, authenticated);
    };
    facts.spool_waits = [this] { return health.state == SpoolHealth::State::suspended; };
  }
};

TEST_F(AnswerTest, EachUser) {
  const std::pair<const char*, const char*> rows[] = {
      {"<ann@example.org>", "continue"},     {"<bob@example.org>", "550 5.2.1"},
      {"<carl@example.org>", "450 4.2.1"},   {"<nobody@example.org>", "550 5.1.1"},
      {"<full@example.org>", "552 5.2.2"},   {"<huge@example.org>", "552 5.2.3"},
      {"<far@example.org>", "continue"},     {"<away@example.org>", "451 4.3.0"},
      {"<wrong@example.org>", "451 4.3.5"},  {"<ann+x@example.org>", "continue"},
      {"ann@example.org", "continue"},       {" <nobody@example.org> ", "550 5.1.1"},
      {"<Nobody@EXAMPLE.ORG>", "550 5.1.1"},
  };
  for (auto [address, reply] : rows) EXPECT_EQ(to(address), reply) << address;
}

TEST_F(AnswerTest, OverQuotaBySetting) {
  rules.recipients.over_quota = OverQuota::defer;
  EXPECT_EQ(to("<full@example.org>"), "452 4.2.2");
  EXPECT_EQ(to("<huge@example.org>"), "552 5.2.3") << "it will never fit";
}

TEST_F(AnswerTest, OldRowsFromMemoryGiveNoPermanentReply) {
  EXPECT_EQ(to("<old@example.org>"), "451 4.3.0");
  EXPECT_EQ(to("<oldfull@example.org>"), "452 4.2.2");
}

TEST_F(AnswerTest, AProbeWithTheNullSenderIsAnsweredAsAnyOther) {
  sender = {};
  EXPECT_EQ(to("<ann@example.org>"), "continue");
  EXPECT_EQ(to("<nobody@example.org>"), "550 5.1.1");
}

TEST_F(AnswerTest, OnlyRecipientsOfLmtpdAreJudged) {
  struct Row {
    const char *word, *mailer, *host, *reply;
  };
  const Row rows[] = {
      {"<nobody@example.org>", "smtp", "mx.example.org", "550 5.1.1"},  // its domain is listed
      {"<nobody@example.com>", "smtp", "mx.example.com", "continue"},   // outgoing
      {"<nobody@example.com>", "", "", "continue"},
      {"<nobody@example.com>", "lmtp", "unix:private/twinloft", "550 5.1.1"},
      {"<nobody@sub.example.org>", "", "", "continue"},
      {"<nobody@myexample.org>", "", "", "continue"},
      {"<nobody>", "local", "", "continue"},
      {"<nobody>", "lmtp", "", "continue"},
      {"<broken", "smtp", "", "continue"},
      {"<broken", "lmtp", "", "501 5.1.3"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(to(row.word, row.mailer, row.host), row.reply) << row.word << row.mailer;
}

TEST_F(AnswerTest, TheMacrosAloneDecideWithoutDomains) {
  rules.scope = {.domains = {}, .mailers = {"lmtp"}, .hosts = {"unix:private/twinloft", "unix:private/b"}};
  EXPECT_EQ(to("<nobody@example.org>", "lmtp", "unix:private/b"), "550 5.1.1");
  EXPECT_EQ(to("<nobody@example.org>", "lmtp", "unix:private/dovecot"), "continue");
  EXPECT_EQ(to("<nobody@example.org>", "smtp", "unix:private/b"), "continue");
  rules.scope.mailers.clear();
  EXPECT_EQ(to("<nobody@example.org>", "smtp", "unix:private/b"), "550 5.1.1");
  EXPECT_EQ(to("<nobody@example.org>", "lmtp", ""), "continue");
}

TEST_F(AnswerTest, UnknownUsersMayBeForTheMtaToJudge) {
  rules.refuses_unknown = false;
  EXPECT_EQ(to("<alias@example.org>"), "continue");
  EXPECT_EQ(to("<bob@example.org>"), "550 5.2.1") << "a known user is judged";
  EXPECT_EQ(to("<full@example.org>"), "552 5.2.2");
  EXPECT_EQ(to("<away@example.org>"), "451 4.3.0") << "who it is, is not known";
  EXPECT_EQ(to("<a b", "lmtp"), "continue");
}

TEST_F(AnswerTest, EachStateOfTheSpool) {
  watch_spool();
  using State = SpoolHealth::State;
  const std::pair<State, const char*> rows[] = {{State::serving, "continue"},
                                                {State::not_mounted, "451 4.3.1"},
                                                {State::failed, "451 4.3.1"},
                                                {State::read_only, "451 4.3.1"},
                                                {State::full, "451 4.3.1"}};
  for (auto [state, reply] : rows) {
    health = {state, {}};
    EXPECT_EQ(to("<ann@example.org>"), reply);
    EXPECT_EQ(to("<far@example.org>"), "continue") << "a user with a next hop needs no spool";
    EXPECT_EQ(to("<nobody@example.org>"), "550 5.1.1") << "no spool would help";
    sender.authenticated = true;
    EXPECT_EQ(to("<ann@example.org>"), reply) << "also for authenticated senders";
    sender.authenticated = false;
  }
}

TEST_F(AnswerTest, ASuspendedSpoolDefersOnlyAfterAWhileAndNoAuthenticatedSender) {
  watch_spool();
  health = {SpoolHealth::State::suspended, now};
  EXPECT_EQ(to("<ann@example.org>"), "continue");
  now = now + (std::chrono::minutes(5) - std::chrono::nanoseconds(1));
  EXPECT_EQ(to("<ann@example.org>"), "continue");
  now = now + std::chrono::nanoseconds(1);
  EXPECT_EQ(to("<ann@example.org>"), "451 4.3.2");
  sender.authenticated = true;
  EXPECT_EQ(to("<ann@example.org>"), "continue");
}

TEST_F(AnswerTest, NoMailboxIsLookedAtWhileTheSpoolWaits) {
  watch_spool();
  health = {SpoolHealth::State::suspended, now};
  facts.look = [](const MailboxQuestion&) -> std::optional<MailboxState> {
    ADD_FAILURE() << "a look that would hang";
    return std::nullopt;
  };
  EXPECT_EQ(to("<full@example.org>"), "continue");
}

TEST_F(AnswerTest, WhatHasNotAnsweredInTime) {
  facts.look_up = [](const LookupRequest&) { return std::nullopt; };
  EXPECT_EQ(to("<ann@example.org>"), "451 4.3.0");
  facts.look_up = look_up;
  facts.look = [](const MailboxQuestion&) { return std::nullopt; };
  EXPECT_EQ(to("<full@example.org>"), "continue") << "lmtpd looks again";
}

TEST_F(AnswerTest, TheMailboxIsAskedForTheAnnouncedSizeAndTheDetail) {
  std::vector<MailboxQuestion> asked;
  facts.look = [&](const MailboxQuestion& question) {
    asked.push_back(question);
    return look(question);
  };
  sender.size = 4711;
  to("<full+lists@example.org>");
  to("<ann@example.org>");
  to("<far@example.org>");
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].size, 4711u);
  EXPECT_EQ(asked[0].detail, "lists");
}

// Postfix appends myorigin to it after this question.
TEST_F(AnswerTest, AnAddressWithoutADomainIsLeftToTheMta) {
  rules.scope.mailers = {"lmtp"};
  for (const char* word : {"<ann>", "<postmaster>", "nobody"}) EXPECT_EQ(to(word), "continue") << word;
}

TEST_F(AnswerTest, AMessageThatLmtpdWouldRefuseForItsSize) {
  rules.message_bytes_max = 1000;
  sender.size = 1001;
  EXPECT_EQ(to("<ann@example.org>"), "552 5.3.4");
  EXPECT_EQ(to("<ann@example.com>"), "continue");
  rules.refuses_unknown = false;
  EXPECT_EQ(to("<nobody@example.org>"), "continue") << "it may be an alias to another server";
  sender.size = 1000;
  EXPECT_EQ(to("<ann@example.org>"), "continue");
}

TEST_F(AnswerTest, AnAgentThatRefusesTheAddress) {
  facts.way_refuses = [](const Sender&, const KnownRecipient& recipient) { return refuse_dash(recipient); };
  EXPECT_EQ(to("<-x@example.org>"), "550 5.1.3");
}

TEST(MilterReply, PercentSignsAreDoubled) {
  EXPECT_EQ(milter_reply(make_reply(550, "5.1.1", "100% of %s, %n")),
            (MilterReply{"550", "5.1.1", "100%% of %%s, %%n"}));
  EXPECT_EQ(milter_reply(make_reply(451, "4.3.0", "plain")), (MilterReply{"451", "4.3.0", "plain"}));
  EXPECT_EQ(milter_reply(make_reply(451, "4.3.0", "two\r\nlines")),
            (MilterReply{"451", "4.3.0", "two??lines"}));
}

}  // namespace
}  // namespace twinloft::spool_milter
