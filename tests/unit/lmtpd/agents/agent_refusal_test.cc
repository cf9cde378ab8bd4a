#include "twinloft/lmtpd/agents/agent_refusal.h"

#include <gtest/gtest.h>

#include "../support/fixture.h"

namespace twinloft::lmtpd {
namespace {

class AgentRefusalTest : public testing::Test {
 protected:
  // The reply's code, or "none".
  std::string refused(const std::string& command) const {
    AgentSpec agent;
    agent.name = "agent";
    agent.command = command;
    auto reply = AgentRefusals({agent}).refusal("agent", envelope_, recipient_);
    return reply ? std::to_string(reply->code) + " " + reply->enhanced : "none";
  }

  Envelope envelope_ = test::make_envelope();
  Recipient recipient_ = test::make_recipient("/srv/mail/ann");
};

TEST_F(AgentRefusalTest, TheSenderAndTheRecipientAreToldApart) {
  EXPECT_EQ(refused("/bin/agent %from% %to%"), "none");
  envelope_.from = "-x@example.net";
  EXPECT_EQ(refused("/bin/agent %from% %to%"), "553 5.1.7");
  EXPECT_EQ(refused("/bin/agent %to%"), "none") << "only values in the template count";
  recipient_.text = "-x@example.org";
  EXPECT_EQ(refused("/bin/agent %to%"), "550 5.1.3");
  recipient_.user.name = "-x@example.org";
  EXPECT_EQ(refused("/bin/agent %user%"), "550 5.1.3");
  recipient_.detail = "-x";
  EXPECT_EQ(refused("/bin/agent [ %detail% ]"), "550 5.1.3");
  recipient_.original_to = "-x";
  EXPECT_EQ(refused("/bin/agent -a [ %original_to% ]"), "550 5.1.3");
  envelope_.envelope_id = "-x";
  EXPECT_EQ(refused("/bin/agent %envid%"), "550 5.7.1");
}

TEST_F(AgentRefusalTest, NothingIsRefusedWhereItCannotBeAnOption) {
  envelope_.from = "-x@example.net";
  recipient_.text = recipient_.user.name = "-x@example.org";
  for (const char* command : {"/usr/lib/dovecot/dovecot-lda -f %from% -a %to% -d %user%",
                              "/bin/agent -- %from% %to%", "/bin/agent --from=%from%", "/bin/agent -f%from%"})
    EXPECT_EQ(refused(command), "none") << command;
}

// A wrong value from the configuration is not the fault of sender or recipient: 451 and a log line.
TEST_F(AgentRefusalTest, WhatTheConfigurationChoosesIsNotRefusedForGood) {
  recipient_.user.home = "-x";
  envelope_.lhlo = "-x";
  EXPECT_EQ(refused("/bin/agent %home%"), "none");
  EXPECT_EQ(refused("/bin/agent %lhlo%"), "none");
  EXPECT_EQ(AgentRefusals({}).refusal("agent", envelope_, recipient_), std::nullopt);
}

}  // namespace
}  // namespace twinloft::lmtpd
