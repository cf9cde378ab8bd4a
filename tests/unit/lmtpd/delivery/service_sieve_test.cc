// Users for whom a Sieve script runs go to another agent or next hop; all others keep the built-in agent.
#include <sys/stat.h>

#include "../support/service_fixture.h"
#include "twinloft/lmtpd/route/next_hop.h"

namespace twinloft::lmtpd {
namespace {

class SieveService : public test::ServiceFixture {
 protected:
  void SetUp() override {
    ServiceFixture::SetUp();
    ByFile rule;
    rule.any_of.push_back(ScriptPath::parse("~/.dovecot.sieve", true).value());
    sieve_.scripts = rule;
    sieve_.agent = "agent";
  }
  void give_script() { std::ofstream(spool_ + "/ann/.dovecot.sieve") << "keep;\n"; }
  // Delivers, and again to where the delivery goes on.
  std::string go() {
    Reply reply = deliver();
    if (!outcome_.elsewhere) return fmt::format("{} {}", reply.code, reply.enhanced);
    Recipient there = *outcome_.elsewhere;
    if (!there.user.next_hop.empty()) return "hop " + there.user.next_hop;
    outcome_ = service_->deliver(test::make_envelope(), there, test::in_memory(test::small_message));
    return fmt::format("{}: {} {}", there.user.agent, outcome_.reply.code, outcome_.reply.enhanced);
  }
  std::size_t stored() const { return test::list(recipient_.user.maildir + "/new").size(); }
};

TEST_F(SieveService, TheScriptDecidesAtEachDelivery) {
  start({spec("save saved")}, "maildir");
  EXPECT_EQ(go(), "250 2.0.0");
  EXPECT_EQ(stored(), 1u);
  give_script();
  EXPECT_EQ(go(), "agent: 250 2.0.0");
  EXPECT_EQ(outcome_.durable, MadeDurable::after_agent);
  EXPECT_TRUE(std::filesystem::exists(spool_ + "/ann/saved"));
  EXPECT_EQ(stored(), 1u);
  become_root();
  std::filesystem::remove(spool_ + "/ann/.dovecot.sieve");
  become_mail_user();
  EXPECT_EQ(go(), "250 2.0.0");
  EXPECT_EQ(stored(), 2u);
}

TEST_F(SieveService, TheOtherWayMayBeANextHop) {
  sieve_.agent.clear();
  sieve_.next_hop = local_hop_name;
  give_script();
  start({spec("save saved")}, "maildir");
  EXPECT_EQ(go(), "hop delivery.sieve");
  EXPECT_EQ(stored(), 0u);
}

// Dovecot's LMTP would deliver to "ann".
TEST_F(SieveService, ANameThatDovecotSplitsWaits) {
  give_script();
  sieve_.delimiters = "+-";
  start({spec("save saved")}, "maildir");
  recipient_.user.name = "ann-marie@example.org";
  EXPECT_EQ(go(), "agent: 250 2.0.0") << "an agent gets the whole name";
  sieve_.agent.clear();
  sieve_.next_hop = local_hop_name;
  start({spec("save saved")}, "maildir");
  EXPECT_EQ(go(), "451 4.3.5");
  EXPECT_NE(outcome_.detail.find("in place of \"ann-marie@example.org\""), std::string::npos)
      << outcome_.detail;
  recipient_.user.name = "ann@my-site.example";
  EXPECT_EQ(go(), "hop delivery.sieve");
  recipient_.user.name = "ann-marie@example.org";
  become_root();
  std::filesystem::remove(spool_ + "/ann/.dovecot.sieve");
  become_mail_user();
  EXPECT_EQ(go(), "250 2.0.0") << "without a script, the built-in agent delivers";
}

TEST_F(SieveService, AMoveHasNoLogLine) {
  give_script();
  start({spec("save saved")}, "maildir");
  testing::internal::CaptureStderr();
  EXPECT_EQ(go(), "agent: 250 2.0.0");
  service_.reset();  // writes the rest of its log
  std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("agent=\"maildir\""), std::string::npos) << log;
  EXPECT_NE(log.find("agent=\"agent\""), std::string::npos) << log;
}

TEST_F(SieveService, AHomeThatCannotBeReadIsNeverNoScript) {
  ASSERT_TRUE(test::is_root()) << "tests/run runs as root: only root closes a home to lmtpd";
  start({spec("save saved")}, "maildir");
  recipient_.user.home = path("closed");
  become_root();
  std::filesystem::create_directories(path("closed"));
  ::chmod(path("closed").c_str(), 0700);
  become_mail_user();
  EXPECT_EQ(go(), "451 4.3.5");
  recipient_.user.home = path("not-mounted/ann");
  EXPECT_EQ(go(), "451 4.3.0");
  EXPECT_EQ(stored(), 0u);
  recipient_.user.home = spool_ + "/not-there-yet";
  EXPECT_EQ(go(), "250 2.0.0") << "a new user's home, in the spool";
}

TEST_F(SieveService, MailThatDovecotStoresElsewhereWouldNotBeDurable) {
  give_script();
  start({spec("save saved")}, "maildir");
  recipient_.user.maildir = path("elsewhere");
  EXPECT_EQ(go(), "451 4.3.5");
}

TEST_F(SieveService, OnlyUsersOfTheBuiltInAgent) {
  give_script();
  AgentSpec other = spec("save other");
  other.name = "other";
  start({spec("save saved"), other}, "maildir");
  recipient_.user.agent = "other";
  EXPECT_EQ(go(), "250 2.0.0");
  EXPECT_TRUE(std::filesystem::exists(spool_ + "/ann/other"));
  EXPECT_FALSE(std::filesystem::exists(spool_ + "/ann/saved"));
}

TEST_F(SieveService, AddressesBeyondAscii) {
  give_script();
  start({spec("save saved")}, "maildir");
  recipient_.text = "ann@b\u00fccher.example";
  recipient_.domain = "xn--bcher-kva.example";
  (void)deliver();
  ASSERT_NE(outcome_.elsewhere, nullptr);
  EXPECT_EQ(outcome_.elsewhere->text, "ann@xn--bcher-kva.example");
  recipient_.text = "\u00e4nn@example.org";
  recipient_.domain = "example.org";
  EXPECT_EQ(go(), "553 5.6.7");
  AgentSpec able = spec("save saved");
  able.smtputf8 = true;
  start({able}, "maildir");
  EXPECT_EQ(go(), "agent: 250 2.0.0");
}

// The template would refuse the word at each attempt.
TEST_F(SieveService, AnAddressThatTheAgentWouldReadAsAnOption) {
  start({spec("save %to%")}, "maildir");
  recipient_.text = "-ann@example.org";
  EXPECT_EQ(go(), "250 2.0.0") << "the built-in agent takes any address";
  give_script();
  EXPECT_EQ(go(), "550 5.1.3");
  EXPECT_FALSE(outcome_.elsewhere);
  recipient_.text = "ann@example.org";
  EXPECT_EQ(go(), "agent: 250 2.0.0");
}

TEST_F(SieveService, AnAgentThatNoSectionConfiguresIsRefused) {
  DeliveryConfig config;
  config.spool = {spool_, volume_};
  config.sieve.agent = "none";
  EXPECT_FALSE(DeliveryService::create(config, nullptr, clock_).has_value());
}

// A message to several users as one file is for those without a script only.
TEST_F(SieveService, AmongRecipientsOfOneFile) {
  give_script();
  DeliveryConfig config;
  config.spool = {spool_, volume_};
  config.sieve = sieve_;
  config.sieve.agent.clear();
  config.sieve.next_hop = local_hop_name;
  config.maildir.hard_links = true;
  become_mail_user();
  auto service = DeliveryService::create(config, nullptr, clock_).value();
  Envelope envelope = test::make_envelope();
  envelope.recipients = {recipient_, recipient_, recipient_};
  for (std::size_t i : {0u, 2u}) {
    User& user = envelope.recipients[i].user;
    user.name = fmt::format("{}@example.org", i);
    user.home = fmt::format("{}/ann/{}", spool_, i);
    user.maildir = user.home + "/Maildir";
  }
  const std::size_t all[] = {0, 1, 2};
  auto outcomes = service->deliver_group(envelope, all, test::in_memory(test::small_message), {});
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_EQ(outcomes[0].reply.code, 250);
  EXPECT_EQ(outcomes[2].reply.code, 250);
  ASSERT_NE(outcomes[1].elsewhere, nullptr);
  EXPECT_EQ(outcomes[1].elsewhere->user.name, recipient_.user.name);
  EXPECT_EQ(test::list(recipient_.user.maildir + "/new").size(), 0u);
}

}  // namespace
}  // namespace twinloft::lmtpd
