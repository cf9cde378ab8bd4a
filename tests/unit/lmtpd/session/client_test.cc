// STARTTLS (RFC 3207), and clients that speak for others (XCLIENT, XFORWARD).
#include "dialogue.h"

namespace twinloft::lmtpd::test {
namespace {

const std::string transaction = "MAIL FROM:<a@d>\r\nRCPT TO:<b@d>\r\nDATA\r\n.\r\n";

class Tls : public Dialogue {
 protected:
  Tls() { client.tls = TlsPolicy::offered; }
};

TEST_F(Tls, IsOfferedUntilItIsInUse) {
  Owner owner({}, client);
  owner.whole(hello + "STARTTLS\r\n");
  EXPECT_NE(owner.sent.find("250-STARTTLS\r\n"), std::string::npos);
  EXPECT_EQ(owner.codes().back(), "220 2.0.0");
  EXPECT_EQ(owner.handshakes, 1);
  EXPECT_FALSE(owner.session().wants_input());
  EXPECT_TRUE(owner.session().in_handshake());
  owner.sent.clear();
  owner.start_tls();
  EXPECT_EQ(owner.sent, "") << "no second greeting";
  owner.whole(hello + "STARTTLS\r\n" + transaction);
  EXPECT_EQ(owner.sent.find("STARTTLS\r\n"), std::string::npos);
  EXPECT_EQ(owner.codes(), (Codes{"250", "503 5.5.1", "250 2.1.0", "250 2.1.5", "354", "250 2.0.0"}));
  EXPECT_EQ(owner.messages.at(0).envelope->tls, "TLSv1.3 with cipher TEST");
}

// CVE-2011-0411, CVE-2021-33515, with every split of the input.
TEST_F(Tls, WhatFollowsInClearIsThrownAway) {
  std::string text = hello + "STARTTLS\r\nLHLO injected.example\r\nMAIL FROM:<evil@d>\r\nRCPT TO:<b@d>\r\n";
  std::size_t begin = text.find("LHLO injected");
  for (std::size_t cut = hello.size(); cut <= text.size(); ++cut) {
    Owner owner({}, client);
    owner.whole(text.substr(0, cut));
    if (!owner.session().in_handshake()) owner.whole(text.substr(cut, begin - cut));
    ASSERT_TRUE(owner.session().in_handshake()) << cut;
    owner.session().receive(as_bytes("NOOP\r\n"));  // an owner that does not check wants_input()
    owner.start_tls();
    owner.whole("RCPT TO:<b@d>\r\nMAIL FROM:<a@d>\r\n");
    Codes codes = owner.codes();
    EXPECT_EQ((Codes{codes.begin() + 2, codes.end()}), (Codes{"220 2.0.0", "503 5.5.1", "503 5.5.1"}))
        << cut << owner.sent;
  }
}

TEST_F(Tls, WhatWasSaidBeforeIsForgotten) {
  Owner owner({}, client);
  owner.whole(hello + "STARTTLS\r\n");
  owner.start_tls();
  owner.whole(transaction);
  Codes codes = owner.codes();
  EXPECT_EQ((Codes{codes.begin() + 3, codes.end()}),
            (Codes{"503 5.5.1", "503 5.5.1", "503 5.5.1", "500 5.5.1"}));
}

TEST_F(Tls, NotWithinATransaction) {
  EXPECT_EQ(replies(hello + "MAIL FROM:<a@d>\r\nSTARTTLS\r\nRCPT TO:<b@d>\r\nSTARTTLS now\r\n"),
            (Codes{"250", "250 2.1.0", "503 5.5.1", "250 2.1.5", "501 5.5.4"}));
}

// RFC 3207 section 4.2: the attributes of XCLIENT and XFORWARD are discarded too.
TEST_F(Tls, WhomItSpokeForIsForgotten) {
  client.may_speak_for = true;
  Owner owner({}, client);
  owner.whole(hello + "XCLIENT ADDR=192.0.2.99 NAME=forged.example HELO=forged.helo\r\n" + hello +
              "XFORWARD NAME=forged.example IDENT=4X\r\nSTARTTLS\r\n");
  owner.start_tls();
  owner.whole(hello + transaction);
  const Envelope& envelope = *owner.messages.at(0).envelope;
  EXPECT_EQ(envelope.client, "192.0.2.7");
  EXPECT_EQ(envelope.client_name, "");
  EXPECT_EQ(envelope.lhlo, "c.example.org");
  EXPECT_EQ(envelope.origin.name + envelope.origin.ident, "");
  owner.whole("XCLIENT ADDR=192.0.2.8\r\n" + hello + transaction);
  EXPECT_EQ(owner.messages.at(1).envelope->client, "192.0.2.8") << "over TLS it counts";
}

// RFC 3207 section 4.
TEST_F(Tls, WhereItIsRequiredNothingElseIsObeyedBefore) {
  client.tls = TlsPolicy::required;
  client.may_speak_for = true;
  auto owner = run(hello +
                   "XCLIENT ADDR=192.0.2.99\r\nXFORWARD NAME=forged.example\r\nMAIL FROM:<a@d>\r\nRCPT "
                   "TO:<b@d>\r\nDATA\r\nBDAT 6\r\nQUIT\r\n"
                   "VRFY ann\r\nHELP\r\nRSET\r\nNOOP\r\nXCLIENT\r\nQUIT\r\n");
  EXPECT_EQ(owner->codes(),
            (Codes{"220", "250", "530 5.7.0", "530 5.7.0", "530 5.7.0", "530 5.7.0", "530 5.7.0", "530 5.7.0",
                   "530 5.7.0", "530 5.7.0", "530 5.7.0", "250 2.0.0", "501 5.5.4", "221 2.0.0"}));
  EXPECT_EQ(owner->sent.find("250-X"), std::string::npos) << "nor is it offered";
  Owner over_tls({}, client);
  over_tls.whole(hello + "XCLIENT ADDR=192.0.2.99\r\nSTARTTLS\r\n");
  over_tls.start_tls();
  over_tls.whole(hello + transaction + "XCLIENT ADDR=192.0.2.8\r\n" + hello + transaction);
  EXPECT_EQ(over_tls.messages.at(0).envelope->client, "192.0.2.7");
  EXPECT_EQ(over_tls.messages.at(1).envelope->client, "192.0.2.8");
}

TEST_F(Tls, MayBeRequired) {
  client.tls = TlsPolicy::required;
  EXPECT_EQ(replies(hello + transaction + "RSET\r\nNOOP\r\n").at(1), "530 5.7.0");
  Owner owner({}, client);
  owner.whole(hello + "STARTTLS\r\n");
  owner.start_tls();
  owner.whole(hello + transaction);
  EXPECT_EQ(owner.messages.size(), 1u);
}

TEST_F(Tls, IsRefusedWhereItIsNotConfigured) {
  client.tls = TlsPolicy::none;
  auto owner = run(hello + "STARTTLS\r\nNOOP\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "502 5.5.1", "250 2.0.0"}));
  EXPECT_EQ(owner->sent.find("250-STARTTLS"), std::string::npos);
}

TEST_F(Tls, TheEndDuringAHandshakeIsSilent) {
  for (bool idle : {true, false}) {
    Owner owner({}, client);
    owner.whole("STARTTLS\r\n");
    std::string before = owner.sent;
    if (idle)
      owner.idle_timeout();
    else
      owner.shutdown();
    EXPECT_TRUE(owner.session().closed());
    EXPECT_EQ(owner.sent, before);
    owner.start_tls();
    EXPECT_EQ(owner.sent, before);
  }
}

class Proxied : public Dialogue {
 protected:
  Proxied() { client.may_speak_for = true; }
};

TEST_F(Proxied, AnotherClientsSession) {
  auto owner = run(hello +
                   "XCLIENT NAME=mx.example.net ADDR=IPV6:2001:db8::7 PORT=1234 PROTO=ESMTP HELO=their.name "
                   "LOGIN=[UNAVAILABLE]\r\n"
                   "MAIL FROM:<a@d>\r\n" +
                   hello + transaction);
  EXPECT_EQ(owner->codes(),
            (Codes{"220", "250", "220", "503 5.5.1", "250", "250 2.1.0", "250 2.1.5", "354", "250 2.0.0"}));
  const Envelope& envelope = *owner->messages.at(0).envelope;
  EXPECT_EQ(envelope.client, "2001:db8::7");
  EXPECT_EQ(envelope.client_name, "mx.example.net");
  EXPECT_EQ(envelope.lhlo, "their.name");
}

// No attribute of the previous client is left.
TEST_F(Proxied, AClientWhoseAddressIsNotKnown) {
  auto owner = run(hello + "XCLIENT ADDR=192.0.2.9 NAME=mx.example.net HELO=their.name\r\n" + hello +
                   "XCLIENT ADDR=[UNAVAILABLE] NAME=[UNAVAILABLE] HELO=[UNAVAILABLE]\r\n" + hello +
                   transaction);
  const Envelope& envelope = *owner->messages.at(0).envelope;
  EXPECT_EQ(envelope.client, client.address);
  EXPECT_EQ(envelope.client_name, "");
  EXPECT_NE(envelope.lhlo, "their.name");
}

TEST_F(Proxied, WhereAMessageCameFrom) {
  auto owner = run(
      hello +
      "XFORWARD NAME=out.example.net ADDR=192.0.2.9\r\nXFORWARD HELO=out IDENT=4XyZ SOURCE=REMOTE\r\n" +
      transaction + transaction);
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.0.0", "250 2.0.0", "250 2.1.0", "250 2.1.5", "354",
                                   "250 2.0.0", "250 2.1.0", "250 2.1.5", "354", "250 2.0.0"}));
  const Envelope& first = *owner->messages.at(0).envelope;
  EXPECT_EQ(
      first.origin.name + " " + first.origin.address + " " + first.origin.helo + " " + first.origin.ident,
      "out.example.net 192.0.2.9 out 4XyZ");
  EXPECT_EQ(first.client, "192.0.2.7") << "the connected client";
  EXPECT_EQ(owner->messages.at(1).envelope->origin.ident, "") << "the attribute was for the previous message";
}

TEST_F(Proxied, NotWithinATransactionAndNotMalformed) {
  for (std::string verb : {"XCLIENT", "XFORWARD"}) {
    EXPECT_EQ(replies(hello + "MAIL FROM:<a@d>\r\n" + verb + " NAME=a\r\nRCPT TO:<b@d>\r\n"),
              (Codes{"250", "250 2.1.0", "503 5.5.1", "250 2.1.5"}));
    for (std::string wrong : {"", " NAME", " NAME=", " NAME=a NAME=b", " FOO=a", " ADDR=mx",
                              " ADDR=1.2.3.4.5", " NAME=a+0Ab", " NAME=a(b", " HELO=a+ZZ"})
      EXPECT_EQ(replies(hello + verb + wrong + "\r\nNOOP\r\n"), (Codes{"250", "501 5.5.4", "250 2.0.0"}))
          << verb << wrong;
  }
}

TEST_F(Proxied, OthersMayNot) {
  client.may_speak_for = false;
  auto owner = run(hello + "XCLIENT ADDR=192.0.2.9\r\nXFORWARD ADDR=192.0.2.9\r\n" + transaction);
  EXPECT_EQ(owner->codes().at(2), "550 5.7.0");
  EXPECT_EQ(owner->codes().at(3), "550 5.7.0");
  EXPECT_EQ(owner->messages.at(0).envelope->client, "192.0.2.7");
  EXPECT_EQ(owner->sent.find("250-X"), std::string::npos) << "nor is it offered";
}

}  // namespace
}  // namespace twinloft::lmtpd::test
