// Whole dialogues.
#include "dialogue.h"

namespace twinloft::lmtpd::test {
namespace {

TEST_F(Dialogue, AMessage) {
  auto owner = run(
      hello +
      "MAIL FROM:<from@example.org> SIZE=30 BODY=8BITMIME\r\nRCPT TO:<Ann+Lists@Example.ORG> "
      "ORCPT=rfc822;alias@example.org\r\nDATA\r\nSubject: x\r\n\r\nHello\r\n..\r\n.\r\nQUIT\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "354", "250 2.0.0", "221 2.0.0"}));
  EXPECT_TRUE(owner->session().closed());
  ASSERT_EQ(owner->messages.size(), 1u);
  EXPECT_EQ(owner->messages[0].text, "Subject: x\r\n\r\nHello\r\n.\r\n");
  const Envelope& envelope = *owner->messages[0].envelope;
  EXPECT_EQ(envelope.from, "from@example.org");
  EXPECT_EQ(envelope.lhlo, "c.example.org");
  EXPECT_EQ(envelope.client, "192.0.2.7");
  EXPECT_TRUE(envelope.body_8bitmime);
  EXPECT_FALSE(envelope.id.empty());
  ASSERT_EQ(envelope.recipients.size(), 1u);
  const Recipient& recipient = envelope.recipients[0];
  EXPECT_EQ(recipient.text, "Ann+Lists@Example.ORG");
  EXPECT_EQ(recipient.local_part, "Ann");
  EXPECT_EQ(recipient.detail, "Lists");
  EXPECT_EQ(recipient.domain, "example.org");
  EXPECT_EQ(recipient.original_to, "alias@example.org");
  EXPECT_EQ(recipient.user.name, "Ann@example.org");
  EXPECT_EQ(owner->size_hints, (std::vector<std::uint64_t>{30}));
}

TEST_F(Dialogue, WhatLhloOffers) {
  config.message_bytes_max = 12345;
  auto owner = run(hello);
  std::string offered = owner->sent.substr(owner->sent.find("250"));
  EXPECT_EQ(offered,
            "250-mx.example.org\r\n250-PIPELINING\r\n250-ENHANCEDSTATUSCODES\r\n250-8BITMIME\r\n250-"
            "CHUNKING\r\n250-SMTPUTF8\r\n250 SIZE 12345\r\n");
}

// RFC 2033 section 4.2: exactly one reply for each accepted RCPT, in their order, also for duplicates.
TEST_F(Dialogue, OneReplyForEachAcceptedRecipientInTheirOrder) {
  prepare = [](Owner& o) {
    o.deliver = [](const Recipient& r) {
      if (r.text.starts_with("full")) return Reply{452, "4.2.2", "full"};
      if (r.text.starts_with("spam")) return Reply{550, "5.7.1", "no"};
      return Reply{250, "2.0.0", "ok"};
    };
  };
  EXPECT_EQ(
      replies(
          hello +
          "MAIL FROM:<>\r\nRCPT TO:<full@d>\r\nRCPT TO:<nobody@d>\r\nRCPT TO:<a@d>\r\nRCPT TO:<broken@d>\r\n"
          "RCPT TO:<spam@d>\r\nRCPT TO:<a@d>\r\nDATA\r\nx\r\n.\r\nNOOP\r\n"),
      (Codes{"250", "250 2.1.0", "250 2.1.5", "550 5.1.1", "250 2.1.5", "451 4.3.0", "250 2.1.5", "250 2.1.5",
             "354", "452 4.2.2", "250 2.0.0", "550 5.7.1", "250 2.0.0", "250 2.0.0"}));
}

TEST_F(Dialogue, UsersThatTakeNoMail) {
  EXPECT_EQ(
      replies(
          hello +
          "MAIL FROM:<>\r\nRCPT TO:<disabled@d>\r\nRCPT TO:<deferred@d>\r\nRCPT TO:<a@d>\r\nDATA\r\n.\r\n"),
      (Codes{"250", "250 2.1.0", "550 5.2.1", "450 4.2.1", "250 2.1.5", "354", "250 2.0.0"}));
}

TEST_F(Dialogue, AWrongRowIsNotTheDatabaseBeingAway) {
  EXPECT_EQ(replies(hello + "MAIL FROM:<>\r\nRCPT TO:<wrong@d>\r\nRCPT TO:<broken@d>\r\n"),
            (Codes{"250", "250 2.1.0", "451 4.3.5", "451 4.3.0"}));
}

TEST_F(Dialogue, NobodyIsRefusedForGoodByWhatTheDatabaseHasSaidBefore) {
  EXPECT_EQ(replies(hello + "MAIL FROM:<>\r\nRCPT TO:<stale-disabled@d>\r\nRCPT TO:<stale-over@d>\r\nRCPT "
                            "TO:<stale@d>\r\nDATA\r\n.\r\n"),
            (Codes{"250", "250 2.1.0", "451 4.3.0", "452 4.2.2", "250 2.1.5", "354", "250 2.0.0"}));
}

// Only mailboxes of accepted users with limits are checked.
TEST_F(Dialogue, AMailboxIsLookedAtBeforeTheReply) {
  const std::string
      some = "RCPT TO:<over@d>\r\nRCPT TO:<away@d>\r\nRCPT TO:<roomy+lists@d>\r\nRCPT TO:<ann@d>\r\n";
  auto owner = run(hello + "MAIL FROM:<> SIZE=77\r\n" + some + "RCPT TO:<nobody-over@d>\r\nDATA\r\n.\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "552 5.2.2", "451 4.3.0", "250 2.1.5",
                                   "250 2.1.5", "550 5.1.1", "354", "250 2.0.0", "250 2.0.0"}));
  ASSERT_EQ(owner->all_mailboxes.size(), 3u);
  EXPECT_EQ(owner->all_mailboxes[2].user.name, "roomy@d");
  EXPECT_EQ(owner->all_mailboxes[2].detail, "lists");
  EXPECT_EQ(owner->all_mailboxes[2].size, 77u);
  config.recipients.over_quota = OverQuota::defer;
  config.recipients.takes_utf8 = [](const User&) { return false; };
  owner = run(hello + "MAIL FROM:<>\r\nRCPT TO:<over@d>\r\nRCPT TO:<over\u00e4@d>\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "452 4.2.2", "553 5.6.7"}));
  EXPECT_EQ(owner->all_mailboxes.size(), 1u);
}

TEST_F(Dialogue, TheDatabaseMaySayAnotherDetail) {
  auto owner = run(hello + "MAIL FROM:<>\r\nRCPT TO:<alias+lists@d>\r\nRCPT TO:<a+lists@d>\r\nDATA\r\n.\r\n");
  const auto& recipients = owner->messages.at(0).envelope->recipients;
  EXPECT_EQ(recipients.at(0).detail, "lists-of-alias");
  EXPECT_EQ(recipients.at(1).detail, "lists");
}

TEST_F(Dialogue, SeveralTransactions) {
  auto owner = run(
      hello +
      "MAIL FROM:<1@d>\r\nRCPT TO:<a@d>\r\nDATA\r\none\r\n.\r\nMAIL FROM:<2@d>\r\nRCPT "
      "TO:<b@d>\r\nDATA\r\n.\r\n"
      "MAIL FROM:<3@d>\r\nRSET\r\nMAIL FROM:<4@d>\r\nRCPT TO:<c@d>\r\nLHLO again\r\nMAIL FROM:<5@d>\r\n"
      "RCPT TO:<d@d>\r\nDATA\r\nfive\r\n.\r\n");
  ASSERT_EQ(owner->messages.size(), 3u);
  EXPECT_EQ(owner->messages[0].text, "one\r\n");
  EXPECT_EQ(owner->messages[1].text, "");
  EXPECT_EQ(owner->messages[2].text, "five\r\n");
  EXPECT_EQ(owner->messages[2].envelope->from, "5@d");
  EXPECT_EQ(owner->messages[2].envelope->lhlo, "again");
  EXPECT_EQ(owner->messages[2].envelope->recipients.size(), 1u);
  EXPECT_NE(owner->messages[0].envelope->id, owner->messages[1].envelope->id);
}

TEST_F(Dialogue, CommandsOutOfOrder) {
  EXPECT_EQ(replies("MAIL FROM:<a@d>\r\nRCPT TO:<a@d>\r\nDATA\r\n"),
            (Codes{"503 5.5.1", "503 5.5.1", "503 5.5.1"}));
  EXPECT_EQ(replies(hello + "RCPT TO:<a@d>\r\nDATA\r\n"), (Codes{"250", "503 5.5.1", "503 5.5.1"}));
  EXPECT_EQ(replies(hello + "MAIL FROM:<a@d>\r\nMAIL FROM:<b@d>\r\nRCPT TO:<a@d>\r\nDATA\r\n.\r\n"),
            (Codes{"250", "250 2.1.0", "503 5.5.1", "250 2.1.5", "354", "250 2.0.0"}));
}

// RFC 2033 section 4.2. The client pipelines DATA, and sends the message only after the reply to DATA.
TEST_F(Dialogue, DataWithoutAnAcceptedRecipient) {
  EXPECT_EQ(replies(hello + "MAIL FROM:<a@d>\r\nRCPT TO:<nobody@d>\r\nDATA\r\nRSET\r\n"),
            (Codes{"250", "250 2.1.0", "550 5.1.1", "503 5.5.1", "250 2.0.0"}));
  EXPECT_EQ(replies(hello + "MAIL FROM:<a@d>\r\nDATA\r\nRCPT TO:<a@d>\r\nDATA\r\n.\r\n"),
            (Codes{"250", "250 2.1.0", "503 5.5.1", "250 2.1.5", "354", "250 2.0.0"}))
      << "the transaction is still open";
}

// An MTA with a cached connection and a queue of mail to unknown users is not misbehaving.
TEST_F(Dialogue, RefusedRecipientsAreNoBadCommands) {
  config.bad_commands_max = 3;
  std::string text = hello;
  for (int i = 0; i < 10; ++i) text += "MAIL FROM:<a@d>\r\nRCPT TO:<nobody@d>\r\nDATA\r\nRSET\r\n";
  auto owner = run(text);
  EXPECT_FALSE(owner->session().closed()) << owner->sent;
}

// A client with PIPELINING sends RCPT and DATA before it gets the refusal of MAIL.
TEST_F(Dialogue, WhatFollowsARefusedMailIsNoBadCommand) {
  config.bad_commands_max = 4;
  config.message_bytes_max = 1000;
  std::string group = "RCPT TO:<a@d>\r\nRCPT TO:<b@d>\r\nRCPT TO:<c@d>\r\nDATA\r\n";
  std::string large;
  for (int i = 0; i < 5; ++i) large += "MAIL FROM:<a@d> SIZE=2000\r\n" + group;
  auto owner = run(hello + large);
  EXPECT_FALSE(owner->session().closed()) << owner->sent;
  auto codes = owner->codes();
  EXPECT_EQ((Codes{codes.begin() + 2, codes.begin() + 7}),
            (Codes{"552 5.3.4", "503 5.5.1", "503 5.5.1", "503 5.5.1", "503 5.5.1"}));
  // A malformed MAIL, or a MAIL before LHLO, is a bad command. The commands of its group are not.
  for (std::string bad : {"MAIL FROM:<a@d> FOO=1\r\n", "mail from:a@d\r\n", "MAIL\r\n"}) {
    EXPECT_FALSE(run(hello + bad + group + bad + group + bad + group)->session().closed()) << bad;
    EXPECT_TRUE(run(hello + bad + group + bad + group + bad + group + bad)->session().closed()) << bad;
  }
  EXPECT_FALSE(run("MAIL FROM:<a@d>\r\n" + group)->session().closed());
  // The group ends with DATA, RSET or LHLO.
  for (std::string end : {"", "RSET\r\n", "LHLO c\r\n"})
    EXPECT_TRUE(run(hello + "MAIL FROM:<a@d> SIZE=2000\r\n" + group + end + group)->session().closed())
        << end;
}

TEST_F(Dialogue, ACompletedTransactionStartsTheCountAnew) {
  config.bad_commands_max = 3;
  std::string transaction = "MAIL FROM:<a@d>\r\nRCPT TO:<a@d>\r\nDATA\r\n.\r\n";
  std::string text = hello;
  for (int i = 0; i < 5; ++i) text += "X\r\nX\r\n" + transaction;
  EXPECT_FALSE(run(text)->session().closed());
  EXPECT_FALSE(run(text + "X\r\nX\r\n")->session().closed());
  EXPECT_TRUE(run(text + "X\r\nX\r\nMAIL FROM:<a@d>\r\nRSET\r\nX\r\n")->session().closed());
}

TEST_F(Dialogue, TooManyBadCommands) {
  config.bad_commands_max = 3;
  auto codes = replies(hello + "X\r\nRCPT TO:<a@d>\r\nNOOP\r\nMAIL FROM:a\r\nX\r\nX\r\nX\r\nNOOP\r\n");
  EXPECT_EQ(codes.back(), "421 4.7.0");
  EXPECT_EQ(std::count(codes.begin(), codes.end(), "421 4.7.0"), 1);
  EXPECT_TRUE(run(hello + "X\r\nX\r\nX\r\nX\r\n")->session().closed());
}

TEST_F(Dialogue, SmtpGreetingsAreRefused) {
  EXPECT_EQ(replies("EHLO c\r\nHELO c\r\n" + hello), (Codes{"500 5.5.1", "500 5.5.1", "250"}));
}

TEST_F(Dialogue, OtherCommands) {
  EXPECT_EQ(replies("NOOP\r\nHELP\r\nVRFY ann\r\nVRFY\r\nRSET\r\nSTARTTLS\r\n"),
            (Codes{"250 2.0.0", "214 2.0.0", "252 2.5.0", "501 5.5.4", "250 2.0.0", "502 5.5.1"}));
}

TEST_F(Dialogue, LinesThatEndWrongly) {
  // RFC 5321 section 2.3.8: a bare LF does not end a line, so the text after it is not executed.
  EXPECT_EQ(replies("NOOP\nNOOP\r\n\nNOOP\r\n\r\nNOOP\r\n"),
            (Codes{"500 5.5.2", "500 5.5.2", "500 5.5.1", "250 2.0.0"}));
  EXPECT_EQ(replies("NOOP\nNOOP\n\n\r\r\nNOOP\r\n"), (Codes{"500 5.5.2", "250 2.0.0"}));
  EXPECT_EQ(replies("NOOP\n" + std::string(5000, 'x') + "\nNOOP\r\nNOOP\r\n"),
            (Codes{"500 5.5.2", "250 2.0.0"}));
  EXPECT_EQ(replies("NOOP\rNOOP\r\nNOOP\r\r\nNOOP\r\n"), (Codes{"500 5.5.2", "500 5.5.2", "250 2.0.0"}));
}

TEST_F(Dialogue, LongLines) {
  std::string longest = "NOOP " + std::string(command_line_bytes_max - 7, 'x') + "\r\n";
  ASSERT_EQ(longest.size(), command_line_bytes_max);
  EXPECT_EQ(replies(longest + "NOOP\r\n"), (Codes{"250 2.0.0", "250 2.0.0"}));
  EXPECT_EQ(replies("N" + longest + "NOOP\r\n"), (Codes{"500 5.5.2", "250 2.0.0"}));
  EXPECT_EQ(replies("NOOP " + std::string(9000, 'x') + "\r\nNOOP\r\n"), (Codes{"500 5.5.2", "250 2.0.0"}))
      << "one reply, whatever the length";
}

// A message ends at CRLF.CRLF only: text in it that looks like commands is data (smuggling).
TEST_F(Dialogue, CommandsHiddenInAMessage) {
  for (const std::string& end :
       {std::string("\n.\n"), std::string("\n.\r\n"), std::string("\r\n.\n"), std::string("\r.\r"),
        std::string("\r\n.\r"), std::string("\r\n.\0\r\n", 6), std::string("\r\n.\r\0\n", 6)}) {
    auto owner = run(hello + "MAIL FROM:<a@d>\r\nRCPT TO:<a@d>\r\nDATA\r\nSubject: x" + end +
                     "MAIL FROM:<forged@d>\r\nRCPT TO:<a@d>\r\nDATA\r\nforged\r\n.\r\n");
    EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "354", "250 2.0.0"}));
    ASSERT_EQ(owner->messages.size(), 1u);
    EXPECT_NE(owner->messages[0].text.find("MAIL FROM:<forged@d>"), std::string::npos);
  }
}

TEST_F(Dialogue, OversizeIsToldToEachRecipient) {
  config.message_bytes_max = 10;
  std::string envelope = "MAIL FROM:<a@d>\r\nRCPT TO:<a@d>\r\nRCPT TO:<b@d>\r\nDATA\r\n";
  auto owner = run(hello + envelope + "123456789\r\n.\r\n" + envelope + "12345678\r\n.\r\n");
  EXPECT_EQ(owner->codes(),
            (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "250 2.1.5", "354", "552 5.3.4", "552 5.3.4",
                   "250 2.1.0", "250 2.1.5", "250 2.1.5", "354", "250 2.0.0", "250 2.0.0"}));
  EXPECT_EQ(owner->aborted, 1);
  ASSERT_EQ(owner->messages.size(), 1u);
  EXPECT_EQ(owner->messages[0].text, "12345678\r\n");
}

TEST_F(Dialogue, AnnouncedOversizeIsRefusedAtOnce) {
  config.message_bytes_max = 100;
  EXPECT_EQ(replies(hello + "MAIL FROM:<a@d> SIZE=101\r\nRCPT TO:<a@d>\r\nMAIL FROM:<a@d> SIZE=100\r\n"),
            (Codes{"250", "552 5.3.4", "503 5.5.1", "250 2.1.0"}));
}

TEST_F(Dialogue, TooManyRecipients) {
  config.recipients_max = 2;
  auto owner = run(hello +
                   "MAIL FROM:<a@d>\r\nRCPT TO:<nobody@d>\r\nRCPT TO:<a@d>\r\nRCPT TO:<b@d>\r\nRCPT "
                   "TO:<c@d>\r\nDATA\r\n.\r\n"
                   "MAIL FROM:<a@d>\r\nRCPT TO:<c@d>\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "550 5.1.1", "250 2.1.5", "250 2.1.5",
                                   "452 4.5.3", "354", "250 2.0.0", "250 2.0.0", "250 2.1.0", "250 2.1.5"}));
}

TEST_F(Dialogue, NotificationParameters) {
  auto owner = run(hello +
                   "MAIL FROM:<a@d> RET=hdrs ENVID=job+2B1\r\nRCPT TO:<b@d> NOTIFY=failure,Delay "
                   "ORCPT=RFC822;c@d\r\nRCPT TO:<d@d>\r\nDATA\r\n.\r\n");
  ASSERT_EQ(owner->messages.size(), 1u);
  const Envelope& envelope = *owner->messages[0].envelope;
  EXPECT_EQ(envelope.ret, "HDRS");
  EXPECT_EQ(envelope.envelope_id, "job+1");
  EXPECT_EQ(envelope.recipients[0].notify, "FAILURE,DELAY");
  EXPECT_EQ(envelope.recipients[0].original_type, "rfc822");
  EXPECT_EQ(envelope.recipients[0].original_to, "c@d");
  EXPECT_EQ(envelope.recipients[1].notify + envelope.recipients[1].original_to, "");
}

TEST_F(Dialogue, AddressesBeyondAscii) {
  auto owner = run(hello +
                   "MAIL FROM:<j\xc3\xb6rg@B\xc3\x9c"
                   "cher.example> SMTPUTF8\r\nRCPT TO:<\xc3\xa4+\xc3\xb6@b\xc3\xbc"
                   "cher.example>\r\nDATA\r\n.\r\n"
                   "MAIL FROM:<a@d>\r\nRCPT TO:<b@d>\r\nDATA\r\n.\r\nMAIL FROM:<\xe4@d>\r\nRCPT "
                   "TO:<\xc3\xa4@d>\r\nDATA\r\n.\r\n");
  EXPECT_EQ(owner->codes(),
            (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "354", "250 2.0.0", "250 2.1.0", "250 2.1.5",
                   "354", "250 2.0.0", "250 2.1.0", "250 2.1.5", "354", "250 2.0.0"}));
  const Envelope& envelope = *owner->messages.at(0).envelope;
  EXPECT_TRUE(envelope.smtputf8);
  EXPECT_EQ(envelope.from,
            "j\xc3\xb6rg@B\xc3\x9c"
            "cher.example")
      << "as it was sent";
  EXPECT_EQ(envelope.recipients.at(0).local_part, "\xc3\xa4");
  EXPECT_EQ(envelope.recipients.at(0).detail, "\xc3\xb6");
  EXPECT_EQ(envelope.recipients.at(0).domain, "xn--bcher-kva.example") << "one form, whatever the spelling";
  EXPECT_FALSE(owner->messages.at(1).envelope->smtputf8);
  EXPECT_EQ(owner->messages.at(2).envelope->from, "\xe4@d")
      << "also without SMTPUTF8, and if it is not UTF-8";
  EXPECT_EQ(owner->messages.at(2).envelope->recipients.at(0).local_part, "\xc3\xa4");
}

// Only if the recipient itself is non-ASCII. Any agent accepts any bytes in the message.
TEST_F(Dialogue, ARecipientWhoseAgentLacksSmtputf8) {
  config.recipients.takes_utf8 = [](const User& user) {
    return user.name != "ol\xc3\xa4@d" && user.name != "old@d";
  };
  for (const char* parameter : {"", " SMTPUTF8"})
    EXPECT_EQ(
        replies(hello + "MAIL FROM:<\xc3\xa4@d>" + parameter +
                "\r\nRCPT TO:<old@d>\r\nRCPT TO:<ol\xc3\xa4@d>\r\nRCPT TO:<n\xc3\xa4w@d>\r\nDATA\r\n.\r\n"),
        (Codes{"250", "250 2.1.0", "250 2.1.5", "553 5.6.7", "250 2.1.5", "354", "250 2.0.0", "250 2.0.0"}));
}

// A domain has an ASCII form, which the agent gets.
TEST_F(Dialogue, ADomainBeyondAsciiIsWrittenInALabelsForSuchAnAgent) {
  config.recipients.takes_utf8 = [](const User&) { return false; };
  auto owner = run(hello +
                   "MAIL FROM:<a@d>\r\nRCPT TO:<bob@b\u00fccher.example>\r\nRCPT "
                   "TO:<b\u00f6b@b\u00fccher.example>\r\nDATA\r\n.\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "553 5.6.7", "354", "250 2.0.0"}));
}

// For each recipient, before the message, and permanently, because a retry would have the same result.
TEST_F(Dialogue, WhatAnAgentCannotBeGivenIsRefusedAtRcpt) {
  config.agent_refusal = [](const Envelope& envelope, const Recipient& recipient) -> std::optional<Reply> {
    if (recipient.user.name == "builtin@d") return std::nullopt;
    if (envelope.from.starts_with('-')) return Reply{553, "5.1.7", "x"};
    if (recipient.text.starts_with('-')) return Reply{550, "5.1.3", "x"};
    return std::nullopt;
  };
  EXPECT_EQ(replies(hello + "MAIL FROM:<-a@d>\r\nRCPT TO:<b@d>\r\nRCPT TO:<builtin@d>\r\nDATA\r\n.\r\nMAIL "
                            "FROM:<a@d>\r\nRCPT TO:<-b@d>\r\nRCPT TO:<b@d>\r\nDATA\r\n.\r\n"),
            (Codes{"250", "250 2.1.0", "553 5.1.7", "250 2.1.5", "354", "250 2.0.0", "250 2.1.0", "550 5.1.3",
                   "250 2.1.5", "354", "250 2.0.0"}));
}

// CVE-2024-23184, CVE-2024-23185: a header without an end uses memory up to its limit only. With DATA and
// with chunks.
TEST_F(Dialogue, AHeaderThatIsTooLarge) {
  config.header_bytes_max = 40;
  std::string fits = "Subject: 7890123456789012345678901\r\n1:\r\n", larger = "x" + fits;
  std::string body = "\r\n" + std::string(200, 'x') + "\r\n";
  std::string begin = "MAIL FROM:<a@d>\r\nRCPT TO:<b@d>\r\nRCPT TO:<c@d>\r\n";
  ASSERT_EQ(fits.size(), 40u);
  auto bdat = [](const std::string& text) {
    return "BDAT " + std::to_string(text.size()) + " LAST\r\n" + text;
  };
  Codes taken = {"250", "250 2.1.0", "250 2.1.5", "250 2.1.5", "354", "250 2.0.0", "250 2.0.0", "250 2.0.0"};
  Codes refused = {"250", "250 2.1.0", "250 2.1.5", "250 2.1.5",
                   "354", "552 5.3.4", "552 5.3.4", "250 2.0.0"};
  EXPECT_EQ(replies(hello + begin + "DATA\r\n" + fits + body + ".\r\nNOOP\r\n"), taken);
  EXPECT_EQ(replies(hello + begin + "DATA\r\n" + larger + body + ".\r\nNOOP\r\n"), refused);
  for (Codes* codes : {&taken, &refused}) codes->erase(codes->begin() + 4);
  EXPECT_EQ(replies(hello + begin + bdat(fits + body) + "NOOP\r\n"), taken);
  EXPECT_EQ(replies(hello + begin + bdat(larger + body) + "NOOP\r\n"), refused);
}

TEST_F(Dialogue, BadAddresses) {
  EXPECT_EQ(
      replies(hello +
              "MAIL FROM:<a b@d>\r\nMAIL FROM:<a@d>\r\nRCPT TO:<>\r\nRCPT TO:<;id;@d>\r\nRCPT TO:<\"\"@d>\r\n"
              "RCPT TO:<\xc3\xa4@d>\r\nRCPT TO:<\xc3@d>\r\nRCPT TO:<a@d> X=1\r\nRCPT TO:<postmaster>\r\n"),
      (Codes{"250", "501 5.1.7", "250 2.1.0", "501 5.1.3", "501 5.1.3", "501 5.1.3", "250 2.1.5", "501 5.1.3",
             "555 5.5.4", "250 2.1.5"}));
}

TEST_F(Dialogue, NothingIsReadAfterQuit) {
  auto owner = run(hello + "QUIT\r\nMAIL FROM:<a@d>\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "221 2.0.0"}));
}

TEST_F(Dialogue, AnotherDelimiterOrNone) {
  config.recipients.detail_delimiter = "";
  auto owner = run(hello + "MAIL FROM:<>\r\nRCPT TO:<a+b@d>\r\n");
  EXPECT_EQ(owner->all_lookups.at(0).local_part, "a+b");
  config.recipients.detail_delimiter = "-";
  owner = run(hello + "MAIL FROM:<>\r\nRCPT TO:<a-b@d>\r\n");
  EXPECT_EQ(owner->all_lookups.at(0).local_part, "a");
}

}  // namespace
}  // namespace twinloft::lmtpd::test
