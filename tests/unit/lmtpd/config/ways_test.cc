// What the configured agents and next hops accept, by the row of the user and by the default agent.
#include "twinloft/lmtpd/config/ways.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

Config config() {
  Config out;
  for (bool utf8 : {true, false}) {
    AgentSpec agent;
    agent.name = utf8 ? "new-agent" : "old-agent";
    agent.command = "/bin/agent %to%";
    agent.smtputf8 = utf8;
    out.agents.push_back(agent);
    NextHopSettings hop;
    hop.spec.name = utf8 ? "new-hop" : "old-hop";
    hop.spec.smtputf8 = utf8;
    out.next_hops.push_back(hop);
  }
  return out;
}

User user(const std::string& agent, const std::string& next_hop = "") {
  User out;
  out.name = "ann@example.org";
  out.agent = agent;
  out.next_hop = next_hop;
  return out;
}

TEST(WaysOfDelivery, Utf8) {
  Config all = config();
  WaysOfDelivery ways(all);
  EXPECT_TRUE(ways.takes_utf8(user("")));
  EXPECT_TRUE(ways.takes_utf8(user("maildir")));
  EXPECT_TRUE(ways.takes_utf8(user("new-agent")));
  EXPECT_FALSE(ways.takes_utf8(user("old-agent")));
  EXPECT_TRUE(ways.takes_utf8(user("unknown"))) << "the delivery reports that it is not configured";
  EXPECT_TRUE(ways.takes_utf8(user("old-agent", "new-hop")));
  EXPECT_FALSE(ways.takes_utf8(user("", "old-hop")));
  EXPECT_TRUE(ways.takes_utf8(user("", "unknown")));
  all.delivery.default_agent = "old-agent";
  EXPECT_FALSE(ways.takes_utf8(user("")));
  EXPECT_TRUE(ways.takes_utf8(user("maildir")));
}

TEST(WaysOfDelivery, AnAgentRefusesWhatItWouldReadAsAnOption) {
  Config all = config();
  WaysOfDelivery ways(all);
  Envelope envelope;
  Recipient recipient;
  recipient.text = "-ann@example.org";
  for (const char* agent : {"", "maildir", "unknown"}) {
    recipient.user = user(agent);
    EXPECT_EQ(ways.refusal(envelope, recipient), std::nullopt) << agent;
  }
  recipient.user = user("new-agent");
  auto reply = ways.refusal(envelope, recipient);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->enhanced, "5.1.3");
  recipient.text = "ann@example.org";
  EXPECT_EQ(ways.refusal(envelope, recipient), std::nullopt);
  recipient.text = "-ann@example.org";
  recipient.user = user("new-agent", "new-hop");
  EXPECT_EQ(ways.refusal(envelope, recipient), std::nullopt) << "no agent is run";
  all.delivery.default_agent = "old-agent";
  recipient.user = user("");
  EXPECT_EQ(ways.refusal(envelope, recipient)->enhanced, "5.1.3");
}

// Where a script runs for some users, the look at the delivery decides.
TEST(WaysOfDelivery, SieveForAllUsersIsJudgedAtRcpt) {
  Config all = config();
  WaysOfDelivery ways(all);
  Envelope envelope;
  Recipient recipient;
  recipient.user = user("");
  recipient.text = "-ann@example.org";
  all.delivery.sieve.agent = "new-agent";
  all.delivery.sieve.scripts = ByFile{};
  EXPECT_EQ(ways.refusal(envelope, recipient), std::nullopt);
  all.delivery.sieve.scripts = AllUsers{"x"};
  EXPECT_EQ(ways.refusal(envelope, recipient)->enhanced, "5.1.3");
  EXPECT_TRUE(ways.takes_utf8(user("")));
  all.delivery.sieve.agent = "old-agent";
  EXPECT_FALSE(ways.takes_utf8(user("")));
  EXPECT_TRUE(ways.takes_utf8(user("new-agent")));
  all.delivery.sieve.scripts = ByFile{};
  EXPECT_TRUE(ways.takes_utf8(user("")));
  all.delivery.sieve.scripts = AllUsers{"x"};
  all.delivery.sieve.agent.clear();
  all.delivery.sieve.next_hop = local_hop_name;
  EXPECT_EQ(ways.refusal(envelope, recipient), std::nullopt);
  recipient.text = "\u00e4nn@example.org";
  EXPECT_EQ(ways.refusal(envelope, recipient), std::nullopt) << "an alias of a user with an ASCII name";
  recipient.user.name = "\u00e4nn@example.org";
  EXPECT_EQ(ways.refusal(envelope, recipient)->enhanced, "5.6.7");
  all.delivery.sieve.scripts = ByFile{};
  EXPECT_EQ(ways.refusal(envelope, recipient), std::nullopt);
}

}  // namespace
}  // namespace twinloft::lmtpd
