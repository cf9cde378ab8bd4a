#include "commands.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

mail::LmtpOffer everything() {
  return mail::read_offer({"store.example", "PIPELINING", "size 1000", "8BITMIME", "SMTPUTF8", "CHUNKING",
                           "DSN", "STARTTLS", "XCLIENT NAME ADDR PROTO HELO",
                           "XFORWARD NAME ADDR HELO IDENT"});
}

TEST(Commands, OffersAreReadInAnyCaseAndNotFromTheGreeting) {
  mail::LmtpOffer offer = everything();
  EXPECT_TRUE(offer.pipelining && offer.size && offer.eight_bit_mime && offer.smtputf8 && offer.chunking &&
              offer.dsn && offer.start_tls);
  EXPECT_TRUE(offer.xclient.contains("HELO") && !offer.xclient.contains("LOGIN"));
  EXPECT_FALSE(mail::read_offer({"PIPELINING", "SIZES"}).pipelining);
}

TEST(Commands, MailSaysWhatIsOffered) {
  Envelope envelope;
  envelope.from = "a@example.net";
  envelope.body_8bitmime = envelope.smtputf8 = true;
  envelope.ret = "HDRS";
  envelope.envelope_id = "x=y";
  EXPECT_EQ(mail_command(envelope, 7, everything(), true),
            "MAIL FROM:<a@example.net> SIZE=7 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=x+3Dy\r\n");
  EXPECT_EQ(mail_command(envelope, 7, {}, false), "MAIL FROM:<a@example.net>\r\n");
}

TEST(Commands, RcptIsTheAddressOrTheUser) {
  Recipient recipient;
  recipient.text = "Info+x@Example.org";
  recipient.detail = "x";
  recipient.user.name = "ann@example.org";
  recipient.original_to = "i+n@example.com";
  recipient.original_type = "rfc822";
  EXPECT_EQ(rcpt_command(recipient, HopRecipient::address, "+", {}, false),
            "RCPT TO:<Info+x@Example.org>\r\n");
  EXPECT_EQ(rcpt_command(recipient, HopRecipient::user, "+", {}, false), "RCPT TO:<ann+x@example.org>\r\n");
  EXPECT_EQ(rcpt_command(recipient, HopRecipient::address, "+", everything(), false),
            "RCPT TO:<Info+x@Example.org> ORCPT=rfc822;i+2Bn@example.com\r\n");
}

// For Dovecot's LMTP: the address before aliases is in ORCPT, which it takes without offering DSN.
TEST(SieveCommands, RcptHasTheUserAndTheAddressAsReceived) {
  Recipient recipient;
  recipient.text = "Info+x@example.org";
  recipient.detail = "x";
  recipient.user.name = "ann@example.org";
  recipient.original_to = "other@example.com";
  recipient.original_type = "rfc822";
  constexpr auto which = HopRecipient::user_and_original;
  EXPECT_EQ(rcpt_command(recipient, which, "+", {}, false),
            "RCPT TO:<ann+x@example.org> ORCPT=rfc822;Info+2Bx@example.org\r\n");
  EXPECT_FALSE(needs_smtputf8(recipient, which, "+"));
  recipient.text = "\u00efnfo@example.org";
  EXPECT_EQ(rcpt_command(recipient, which, "+", {}, false), "RCPT TO:<ann+x@example.org>\r\n");
  EXPECT_FALSE(needs_smtputf8(recipient, which, "+"));
  EXPECT_TRUE(needs_smtputf8(recipient, HopRecipient::user, "+"));
  recipient.user.name = "\u00e4nn@example.org";
  EXPECT_TRUE(needs_smtputf8(recipient, which, "+"));
}

// Dovecot refuses a recipient whose ORCPT it cannot parse.
TEST(SieveCommands, OrcptIsLeftOutWhereItIsNoPlainAddress) {
  Recipient recipient;
  recipient.user.name = "ann@example.org";
  for (auto [text, plain] : std::initializer_list<std::pair<const char*, bool>>{{"info@example.org", true},
                                                                                {"\"a b\"@example.org", true},
                                                                                {"a..b@example.org", false},
                                                                                {".a@example.org", false},
                                                                                {"a b@example.org", false},
                                                                                {"info", false},
                                                                                {"info@", false},
                                                                                {"info@[192.0.2.1]", false},
                                                                                {"info@a_b.example", false},
                                                                                {"info@a..b", false},
                                                                                {"\"@example.org", false}}) {
    recipient.text = text;
    std::string said = rcpt_command(recipient, HopRecipient::user_and_original, "+", {}, false);
    EXPECT_EQ(said.find(" ORCPT=") != std::string::npos, plain) << said;
    EXPECT_TRUE(said.starts_with("RCPT TO:<ann@example.org>")) << said;
  }
}

// A name from a quoted local part must not become a parameter.
TEST(Commands, NamesAreQuotedWhereTheyNeedIt) {
  Recipient recipient;
  recipient.user.name = "a> NOTIFY=NEVER \"b\\@example.org";
  EXPECT_EQ(rcpt_command(recipient, HopRecipient::user, "+", {}, false),
            "RCPT TO:<\"a> NOTIFY=NEVER \\\"b\\\\\"@example.org>\r\n");
  recipient.user.name = "a..b@example.org";
  EXPECT_EQ(rcpt_command(recipient, HopRecipient::user, "+", {}, false),
            "RCPT TO:<\"a..b\"@example.org>\r\n");
}

TEST(Commands, XclientSaysWhoTheClientIs) {
  Envelope envelope;
  envelope.client = "2001:db8::1";
  envelope.lhlo = "c+d";
  EXPECT_EQ(xclient_command(envelope, everything()),
            "XCLIENT ADDR=IPV6:2001:db8::1 NAME=[UNAVAILABLE] PROTO=LMTP HELO=c+2Bd\r\n");
  envelope.client = "unix";
  EXPECT_EQ(xclient_command(envelope, mail::read_offer({"", "XCLIENT ADDR"})),
            "XCLIENT ADDR=[UNAVAILABLE]\r\n");
  EXPECT_EQ(xclient_command(envelope, {}), "");
}

TEST(Commands, XforwardSaysWhomTheMtaHadItFromElseTheMta) {
  Envelope envelope;
  envelope.client = "192.0.2.1";
  envelope.lhlo = "mta";
  envelope.id = "abc.1";
  EXPECT_EQ(xforward_command(envelope, everything()),
            "XFORWARD ADDR=192.0.2.1 NAME=[UNAVAILABLE] HELO=mta IDENT=abc.1\r\n");
  envelope.origin = {"far.example", "198.51.100.7", "", "far", "4XyZ"};
  EXPECT_EQ(xforward_command(envelope, everything()),
            "XFORWARD ADDR=198.51.100.7 NAME=far.example HELO=far IDENT=4XyZ\r\n");
}

}  // namespace
}  // namespace twinloft::lmtpd
