// Refused senders and recipients: the owner is notified of each. A client with too many refusals is
// disconnected between two transactions.
#include "dialogue.h"

namespace twinloft::lmtpd::test {
namespace {

std::string text_of(const Refused& r) {
  static constexpr const char* what[] = {"sender", "recipient", "message", "connection"};
  std::string out = what[static_cast<std::size_t>(r.what)];
  return out + " " + r.id + " " + r.client + " " + r.from + " " + r.to + " " + std::to_string(r.reply.code) +
         " " + r.reply.enhanced;
}

class Refusals : public Dialogue {
 protected:
  std::vector<std::string> told(std::string_view text) {
    std::vector<std::string> out;
    std::unique_ptr<Owner> owner = run(text);
    for (const Refused& r : owner->refused) out.push_back(text_of(r));
    return out;
  }
  static std::string recipients(int count, const std::string& local_part = "nobody") {
    std::string out;
    for (int i = 0; i < count; ++i) out += "RCPT TO:<" + local_part + "@d>\r\n";
    return out;
  }
};

const std::string mail = "MAIL FROM:<a@d>\r\n";

TEST_F(Refusals, TheOwnerHearsOfEach) {
  config.message_bytes_max = 100;
  EXPECT_EQ(told(hello + "MAIL FROM:<a@d> SIZE=101\r\n" + mail +
                 "RCPT TO:<nobody@d>\r\nRCPT TO:<ann@d>\r\nRCPT TO:<broken@d>\r\nRCPT TO:<disabled@d>\r\n"
                 "RCPT TO:b@d\r\n"),
            (Codes{"sender  192.0.2.7 a@d  552 5.3.4", "recipient id1 192.0.2.7 a@d nobody@d 550 5.1.1",
                   "recipient id1 192.0.2.7 a@d broken@d 451 4.3.0",
                   "recipient id1 192.0.2.7 a@d disabled@d 550 5.2.1",
                   "recipient id1 192.0.2.7 a@d RCPT TO:b@d 501 5.1.3"}));
  EXPECT_EQ(told(hello + mail + "RCPT TO:<ann@d>\r\nDATA\r\n" + std::string(101, 'x') + "\r\n.\r\n"),
            (Codes{"message id1 192.0.2.7 a@d ann@d 552 5.3.4"}));
  EXPECT_TRUE(told(hello + mail + "RCPT TO:<ann@d>\r\nDATA\r\n.\r\nQUIT\r\n").empty());
}

// Also of recipients at a point where no RCPT is allowed.
TEST_F(Refusals, TheOwnerHearsOfRecipientsOutOfOrder) {
  EXPECT_EQ(told(hello + "RCPT TO:<ann@d>\r\n"), (Codes{"recipient  192.0.2.7  ann@d 503 5.5.1"}));
  config.message_bytes_max = 100;
  EXPECT_EQ(told(hello + "MAIL FROM:<a@d> SIZE=101\r\nRCPT TO:<ann@d>\r\n"),
            (Codes{"sender  192.0.2.7 a@d  552 5.3.4", "recipient  192.0.2.7  ann@d 503 5.5.1"}));
  EXPECT_EQ(told(hello + mail + "RCPT TO:<ann@d>\r\nBDAT 1\r\nxRCPT TO:<bob@d>\r\n"),
            (Codes{"recipient id1 192.0.2.7 a@d bob@d 503 5.5.1"}));
}

TEST_F(Refusals, AndOfAClientThatIsSentAway) {
  config.bad_commands_max = 2;
  EXPECT_EQ(told(hello + "FOO\r\nFOO\r\n"), (Codes{"connection  192.0.2.7   421 4.7.0"}));
}

// An MTA that only verifies recipients, each in its own transaction, gets the 421 at RSET. No message waits
// then.
TEST_F(Refusals, ManyInARowEndTheConnectionAtReset) {
  config.refused_max = 3;
  const std::string probe = mail + "RCPT TO:<nobody@d>\r\nRSET\r\n";
  EXPECT_EQ(replies(hello + probe + probe + probe + "NOOP\r\n"),
            (Codes{"250", "250 2.1.0", "550 5.1.1", "250 2.0.0", "250 2.1.0", "550 5.1.1", "250 2.0.0",
                   "250 2.1.0", "550 5.1.1", "421 4.7.0"}));
}

TEST_F(Refusals, OrAtTheNextSender) {
  config.refused_max = 2;
  EXPECT_EQ(replies(hello + mail + recipients(2) + "DATA\r\nRSET\r\n").back(), "421 4.7.0");
  config.message_bytes_max = 100;
  const std::string large = "MAIL FROM:<a@d> SIZE=101\r\n";
  EXPECT_EQ(replies(hello + large + large + large), (Codes{"250", "552 5.3.4", "552 5.3.4", "421 4.7.0"}));
}

// Existing recipients get the message, whatever the number of unknown recipients.
TEST_F(Refusals, NeverWithinATransaction) {
  config.refused_max = 2;
  auto owner = run(hello + mail + recipients(5) + recipients(1, "ann") + recipients(5) + "DATA\r\n.\r\n" +
                   mail + recipients(1, "ann") + "DATA\r\n.\r\n");
  EXPECT_EQ(owner->messages.size(), 2u) << owner->sent;
  EXPECT_FALSE(owner->session().closed());
}

TEST_F(Refusals, AnAcceptedRecipientOrAMessageBeginsTheCountAnew) {
  config.refused_max = 3;
  const std::string some = mail + recipients(2) + "RSET\r\n", good = mail + recipients(1, "ann") + "RSET\r\n";
  auto owner = run(hello + some + good + some + good + some);
  EXPECT_FALSE(owner->session().closed()) << owner->sent;
}

// Temporary refusals do not count: while the database is away, every recipient gets one.
TEST_F(Refusals, TemporaryOnesDoNotCount) {
  config.refused_max = 2;
  EXPECT_FALSE(
      run(hello + mail + recipients(5, "broken") + "RSET\r\n" + mail + recipients(5, "deferred") + "RSET\r\n")
          ->session()
          .closed());
}

TEST_F(Refusals, OneTransactionHasNoMoreOfThemThanRecipients) {
  config.recipients_max = 3;
  auto owner = run(hello + mail + recipients(4) + recipients(1, "ann"));
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "550 5.1.1", "550 5.1.1", "550 5.1.1",
                                   "452 4.5.3", "452 4.5.3"}));
  EXPECT_EQ(owner->all_lookups.size(), 3u) << "further recipients are not looked up";
}

// A client with PIPELINING did not know that the sender was refused. It sends at most as many recipients as a
// message may have.
TEST_F(Refusals, BehindARefusedSenderMoreRecipientsThanAMessageHasAreBadCommands) {
  config.recipients_max = 3;
  config.bad_commands_max = 2;
  config.message_bytes_max = 100;
  const std::string large = "MAIL FROM:<a@d> SIZE=101\r\n";
  auto owner = run(hello + large + recipients(3) + "DATA\r\n" + large + recipients(3) + "DATA\r\n" + mail +
                   recipients(3, "ann"));
  EXPECT_FALSE(owner->session().closed()) << owner->sent;
  EXPECT_EQ(owner->codes().back(), "250 2.1.5");
  EXPECT_EQ(replies(hello + large + recipients(9)),
            (Codes{"250", "552 5.3.4", "503 5.5.1", "503 5.5.1", "503 5.5.1", "503 5.5.1", "503 5.5.1",
                   "421 4.7.0"}));
}

TEST_F(Refusals, WithoutTlsThatIsRequiredTheyCountToo) {
  client.tls = TlsPolicy::required;
  config.refused_max = 2;
  EXPECT_EQ(replies(hello + mail + mail + mail), (Codes{"250", "530 5.7.0", "530 5.7.0", "421 4.7.0"}));
}

}  // namespace
}  // namespace twinloft::lmtpd::test
