#include "twinloft/lmtpd/quota_status/policy.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

TEST(Policy, RequestNamesRecipientAndSize) {
  EXPECT_EQ(policy_request("ann@example.org", 123),
            "request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=LMTP\nrecipient=ann@example."
            "org\nsize=123\n\n");
}

TEST(Policy, RecipientIsTheUsersNameAsAnAddress) {
  EXPECT_EQ(policy_recipient("ann@example.org", "+"), "ann@example.org");
  EXPECT_EQ(policy_recipient("ann", "+"), "ann");
  EXPECT_EQ(policy_recipient("a b@example.org", "+"), "\"a b\"@example.org");
  EXPECT_EQ(policy_recipient("a\"@b@example.org", "+"), "\"a\\\"@b\"@example.org");
  EXPECT_FALSE(policy_recipient("", "+"));
  EXPECT_FALSE(policy_recipient("@example.org", "+"));
  EXPECT_FALSE(policy_recipient("ann@example.org\nsize=1", "+"));
  EXPECT_FALSE(policy_recipient("ann\r@example.org", "+"));
  // Dovecot would split these names, and answer for another user.
  EXPECT_FALSE(policy_recipient("ann+lists@example.org", "+"));
  EXPECT_FALSE(policy_recipient("ann-marie@example.org", "+-"));
  EXPECT_EQ(policy_recipient("ann-marie@my-example.org", "+"), "ann-marie@my-example.org");
  EXPECT_EQ(policy_recipient("ann+lists@example.org", ""), "ann+lists@example.org");
  EXPECT_EQ(policy_recipient("ann@a-b.example", "-"), "ann@a-b.example");
}

TEST(Policy, ActionIsFoundInAnAnswer) {
  EXPECT_EQ(policy_action("action=DUNNO\n\n"), "DUNNO");
  EXPECT_EQ(policy_action("x=y\naction=552 5.2.2 Full\n\n"), "552 5.2.2 Full");
  EXPECT_EQ(policy_action("reaction=OK\n\n"), "");
  EXPECT_EQ(policy_action("\n\n"), "");
  EXPECT_EQ(policy_action(""), "");
  EXPECT_EQ(policy_action("action="), "");
}

TEST(Policy, ActionsThatPass) {
  for (const char* action : {"DUNNO", "dunno", "OK", "PERMIT", "OK for now"})
    EXPECT_EQ(room_of_action(action), Room::enough) << action;
}

TEST(Policy, ActionsThatSayTheMailboxIsFull) {
  for (const char* action :
       {"552 5.2.2 Mailbox is full", "554 5.2.2 Quota exceeded", "452 4.2.2 Later", "REJECT 5.2.2 Full",
        "DEFER 4.2.2 Full", "DEFER_IF_PERMIT 4.2.2 Full", "552 Full", "452 Full", "552"})
    EXPECT_EQ(room_of_action(action), Room::full) << action;
  EXPECT_EQ(room_of_action("552 5.2.3 Too large"), Room::never);
}

// An answer about something else causes no permanent refusal.
TEST(Policy, OthersAreErrorsThatShowThem) {
  for (const char* action : {"", " ", "REJECT Unknown user", "REJECT", "550 5.1.1 Unknown", "550 Full",
                             "DEFER_IF_PERMIT Internal error", "451 4.3.0 Later", "552 5.1.1 Unknown",
                             "DISCARD", "HOLD", "250", "5522 5.2.2", "55a 5.2.2", "5.2.2"}) {
    auto room = room_of_action(action);
    ASSERT_FALSE(room) << action;
    EXPECT_EQ(room.error().code, Errc::conflict);
    EXPECT_NE(room.error().message.find(action), std::string::npos);
  }
}

}  // namespace
}  // namespace twinloft::lmtpd
