#include "twinloft/lmtpd/proto/command.h"

#include <gtest/gtest.h>

#include <string>

namespace twinloft::lmtpd {
namespace {

template <class T>
T parse(std::string_view line) {
  auto command = parse_command(line);
  if (!command) {
    ADD_FAILURE() << line << ": " << command.error().code << " " << command.error().text;
    return T{};
  }
  const T* out = std::get_if<T>(&*command);
  if (!out) ADD_FAILURE() << line << " is another command";
  return out ? *out : T{};
}

// Returns "501 5.5.4" and the like, or "ok".
std::string refusal(std::string_view line) {
  auto command = parse_command(line);
  if (command) return "ok";
  EXPECT_FALSE(command.error().text.empty()) << line;
  return std::to_string(command.error().code) + " " + command.error().enhanced;
}

TEST(Command, VerbsInAnyCaseAndWithBlanksBehind) {
  parse<Data>("DATA");
  parse<Data>("data");
  parse<Data>("DaTa  \t");
  parse<Rset>("RSET");
  parse<Quit>("quit ");
  parse<Noop>("NOOP");
  parse<Noop>("NOOP of any kind");
  parse<Help>("HELP");
  parse<Help>("HELP MAIL");
  parse<Vrfy>("VRFY ann");
  EXPECT_EQ(parse<Lhlo>("LHLO mx.example.org").domain, "mx.example.org");
  EXPECT_EQ(parse<Lhlo>("lhlo  [192.0.2.1] ").domain, "[192.0.2.1]");
  EXPECT_EQ(parse<Lhlo>("LHLO my_host").domain, "my_host");
}

TEST(Command, Bdat) {
  EXPECT_EQ(parse<Bdat>("BDAT 0").size, 0u);
  EXPECT_FALSE(parse<Bdat>("BDAT 12345").last);
  EXPECT_EQ(parse<Bdat>("bdat  18446744073709551615 last ").size, UINT64_MAX);
  EXPECT_TRUE(parse<Bdat>("BDAT 1 LAST").last);
  for (std::string_view line : {"BDAT", "BDAT LAST", "BDAT x", "BDAT 1x", "BDAT -1",
                                "BDAT 18446744073709551616", "BDAT 1 2", "BDAT 1 LAST 2"}) {
    EXPECT_EQ(refusal(line), "501 5.5.4") << line;
    EXPECT_TRUE(is_bdat(line));
  }
  EXPECT_FALSE(is_bdat("BDATA 1"));
}

TEST(Command, Unknown) {
  for (std::string_view line : {"", " ", "X", "DATAX", "DAT", " DATA", "MAILFROM:<>", "RCPTTO:<a@d>", "\xff"})
    EXPECT_EQ(refusal(line), "500 5.5.1") << line;
}

// RFC 2033 section 4.1: an LMTP server must not accept them.
TEST(Command, SmtpIsRefused) {
  EXPECT_EQ(refusal("HELO mx.example.org"), "500 5.5.1");
  EXPECT_EQ(refusal("EHLO mx.example.org"), "500 5.5.1");
  EXPECT_EQ(refusal("ehlo"), "500 5.5.1");
}

TEST(Command, ArgumentsWhereThereAreNone) {
  EXPECT_EQ(refusal("DATA now"), "501 5.5.4");
  EXPECT_EQ(refusal("RSET x"), "501 5.5.4");
  EXPECT_EQ(refusal("QUIT x"), "501 5.5.4");
  EXPECT_EQ(refusal("LHLO"), "501 5.5.4");
  EXPECT_EQ(refusal("VRFY "), "501 5.5.4");
  EXPECT_EQ(refusal("LHLO a b"), "501 5.5.4");
  EXPECT_EQ(refusal("LHLO " + std::string(300, 'a')), "501 5.5.4");
}

// The name goes into a Received field.
TEST(Command, LhloNamesCanNotForgeAHeader) {
  for (std::string_view line : {"LHLO a(b", "LHLO a)", "LHLO <a>", "LHLO a\"b", "LHLO a\\b", "LHLO \xc3\xa4",
                                "LHLO a\x1b"
                                "b"})
    EXPECT_NE(refusal(line), "ok") << line;
}

TEST(Command, NulAndCarriageReturnWithinALine) {
  EXPECT_EQ(refusal(std::string_view("MAIL FROM:<a@d>\0", 16)), "500 5.5.2");
  EXPECT_EQ(refusal(std::string_view("RCPT TO:<a\0b@d>", 15)), "500 5.5.2");
  EXPECT_EQ(refusal(std::string_view("NOOP \0", 6)), "500 5.5.2");
  EXPECT_EQ(refusal("RSET\rMAIL FROM:<a@d>"), "500 5.5.2");
  EXPECT_EQ(refusal("RSET\r"), "500 5.5.2");
}

TEST(Mail, Sender) {
  EXPECT_EQ(parse<Mail>("MAIL FROM:<ann@example.org>").from.text, "ann@example.org");
  EXPECT_EQ(parse<Mail>("mail from:<ann@example.org>").from.text, "ann@example.org");
  EXPECT_EQ(parse<Mail>("MAIL FROM: <ann@example.org>").from.text, "ann@example.org") << "as postal sends it";
  EXPECT_EQ(parse<Mail>("MAIL FROM:  \t<ann@example.org> ").from.text, "ann@example.org");
  EXPECT_TRUE(parse<Mail>("MAIL FROM:<>").from.is_null());
  Mail plain = parse<Mail>("MAIL FROM:<a@d>");
  EXPECT_FALSE(plain.size);
  EXPECT_FALSE(plain.body_8bitmime);
}

TEST(Mail, SenderSyntax) {
  EXPECT_EQ(refusal("MAIL"), "501 5.5.4");
  EXPECT_EQ(refusal("MAIL TO:<a@d>"), "501 5.5.4");
  EXPECT_EQ(refusal("MAIL FROM<a@d>"), "501 5.5.4");
  EXPECT_EQ(refusal("MAIL FROM :<a@d>"), "501 5.5.4");
  for (std::string_view line : {"MAIL FROM:", "MAIL FROM:a@d", "MAIL FROM:<a@d", "MAIL FROM:<a@d>SIZE=1",
                                "MAIL FROM:<a@d>>", "MAIL FROM:<a b@d>", "MAIL FROM:Ann <a@d>"})
    EXPECT_EQ(refusal(line), "501 5.1.7") << line;
}

TEST(Mail, Parameters) {
  Mail mail = parse<Mail>("MAIL FROM:<a@d> SIZE=12345 BODY=8BITMIME");
  EXPECT_EQ(mail.size, 12345u);
  EXPECT_TRUE(mail.body_8bitmime);
  mail = parse<Mail>("MAIL FROM:<a@d>   body=7bit   size=0  ");
  EXPECT_EQ(mail.size, 0u);
  EXPECT_FALSE(mail.body_8bitmime);
  // RFC 1870 allows twenty digits. A value beyond 64 bits exceeds every limit.
  EXPECT_EQ(parse<Mail>("MAIL FROM:<a@d> SIZE=99999999999999999999").size, UINT64_MAX);
}

TEST(Mail, BadParameters) {
  for (std::string_view p : {"SIZE",
                             "SIZE=",
                             "SIZE=x",
                             "SIZE=-1",
                             "SIZE=+1",
                             "SIZE=1x",
                             "SIZE=0x10",
                             "BODY",
                             "BODY=",
                             "BODY=BINARYMIME",
                             "BODY=8",
                             "SIZE=1 SIZE=2",
                             "BODY=7BIT BODY=8BITMIME",
                             "SMTPUTF8=",
                             "SMTPUTF8=1",
                             "SMTPUTF8 SMTPUTF8",
                             "RET",
                             "RET=",
                             "RET=ALL",
                             "RET=FULL RET=FULL",
                             "ENVID",
                             "ENVID=",
                             "ENVID=+",
                             "ENVID=+0A",
                             "ENVID=a=b",
                             "ENVID=a ENVID=b"})
    EXPECT_EQ(refusal("MAIL FROM:<a@d> " + std::string(p)), "501 5.5.4") << p;
  EXPECT_EQ(refusal("MAIL FROM:<a@d> ENVID=" + std::string(100, 'x')), "ok");
  EXPECT_EQ(refusal("MAIL FROM:<a@d> ENVID=" + std::string(101, 'x')), "501 5.5.4");
  for (std::string_view p : {"AUTH=<>", "X", "SIZES=1", "RETURN=FULL"})
    EXPECT_EQ(refusal("MAIL FROM:<a@d> " + std::string(p)), "555 5.5.4") << p;
}

TEST(Mail, BeyondAscii) {
  Mail mail = parse<Mail>("MAIL FROM:<j\xc3\xb6rg@d> BODY=8BITMIME SMTPUTF8");
  EXPECT_TRUE(mail.smtputf8);
  EXPECT_FALSE(mail.from.is_ascii);
  EXPECT_FALSE(parse<Mail>("MAIL FROM:<a@d>").smtputf8);
  EXPECT_EQ(parse<Mail>("MAIL FROM:<j\xc3\xb6rg@d>").from.text, "j\xc3\xb6rg@d") << "the MTA has accepted it";
  EXPECT_EQ(parse<Mail>("MAIL FROM:<j\xf6rg@d> SIZE=1").from.text, "j\xf6rg@d") << "also if it is not UTF-8";
  EXPECT_EQ(parse<Mail>("MAIL FROM:<j\xf6rg@d> SMTPUTF8").from.text, "j\xf6rg@d");
}

TEST(Mail, ForNotifications) {
  Mail mail = parse<Mail>("MAIL FROM:<a@d> ret=full envid=a+2Bb+20c");
  EXPECT_EQ(mail.ret, "FULL");
  EXPECT_EQ(mail.envelope_id, "a+b c");
}

TEST(Rcpt, Notify) {
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<a@d> NOTIFY=never").notify, "NEVER");
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<a@d> notify=Delay,SUCCESS").notify, "DELAY,SUCCESS");
  for (std::string_view p : {"NOTIFY", "NOTIFY=", "NOTIFY=X", "NOTIFY=NEVER,DELAY", "NOTIFY=DELAY,DELAY",
                             "NOTIFY=DELAY,", "NOTIFY=,DELAY", "NOTIFY=DELAY NOTIFY=DELAY"})
    EXPECT_EQ(refusal("RCPT TO:<a@d> " + std::string(p)), "501 5.5.4") << p;
}

// RFC 6533 section 3.
TEST(Rcpt, OriginalRecipientBeyondAscii) {
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<a@d> ORCPT=utf-8;j\\x{F6}rg@d").original_to, "j\xc3\xb6rg@d");
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<a@d> ORCPT=UTF-8;\\x{1F4E7}+2Bx@d").original_to, "\xf0\x9f\x93\xa7+x@d");
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<a@d> ORCPT=utf-8;j\xc3\xb6rg@d").original_to, "j\xc3\xb6rg@d");
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<a@d> ORCPT=Utf-8;a@d").original_type, "utf-8");
  for (std::string_view p :
       {"ORCPT=utf-8;\\x{}", "ORCPT=utf-8;\\x{0A}", "ORCPT=utf-8;\\x{85}", "ORCPT=utf-8;\\x{D800}",
        "ORCPT=utf-8;\\x{110000}", "ORCPT=utf-8;\\x{F6", "ORCPT=utf-8;\\x{FFFFFFFFF}", "ORCPT=utf-8;\xc3",
        "ORCPT=utf-8;+C3+A4", "ORCPT=rfc 822;a@d"})
    EXPECT_EQ(refusal("RCPT TO:<a@d> " + std::string(p)).substr(0, 1), "5") << p;
}

TEST(Rcpt, Recipient) {
  Rcpt rcpt = parse<Rcpt>("RCPT TO:<Ann+x@Example.ORG>");
  EXPECT_EQ(rcpt.to.text, "Ann+x@Example.ORG");
  EXPECT_EQ(rcpt.to.local_part, "Ann+x");
  EXPECT_EQ(rcpt.to.domain, "example.org");
  EXPECT_TRUE(rcpt.original_to.empty());
  EXPECT_EQ(parse<Rcpt>("RCPT TO: <ann@example.org>").to.text, "ann@example.org");
  EXPECT_EQ(parse<Rcpt>("rcpt to:<Postmaster>").to.local_part, "Postmaster");
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<@a,@b:ann@d>").to.text, "ann@d");
}

TEST(Rcpt, RecipientSyntax) {
  EXPECT_EQ(refusal("RCPT"), "501 5.5.4");
  EXPECT_EQ(refusal("RCPT FROM:<a@d>"), "501 5.5.4");
  for (std::string_view line :
       {"RCPT TO:<>", "RCPT TO:", "RCPT TO:a@d", "RCPT TO:<a@d>X", "RCPT TO:<;id;@d>"})
    EXPECT_EQ(refusal(line), "501 5.1.3") << line;
}

TEST(Rcpt, OriginalRecipient) {
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<a@d> ORCPT=rfc822;ann@example.org").original_to, "ann@example.org");
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<a@d> orcpt=rfc822;ann+2Blists@d").original_to, "ann+lists@d");
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<a@d> ORCPT=rfc822;a+20b+3Dc@d").original_to, "a b=c@d");
  EXPECT_EQ(parse<Rcpt>("RCPT TO:<a@d> ORCPT=rfc822;a+2B").original_to, "a+");
}

TEST(Rcpt, BadParameters) {
  for (std::string_view p :
       {"ORCPT", "ORCPT=", "ORCPT=rfc822", "ORCPT=;a@d", "ORCPT=rfc822;a+", "ORCPT=rfc822;a+2",
        "ORCPT=rfc822;a+2G", "ORCPT=rfc822;a+ZZ", "ORCPT=rfc822;a=b",
        // decoded, these characters would end a header line or an argument
        "ORCPT=rfc822;a+0D+0Ab", "ORCPT=rfc822;a+00b", "ORCPT=rfc822;a+7Fb", "ORCPT=rfc822;a+FFb",
        "ORCPT=rfc822;", "ORCPT=rfc822;a ORCPT=rfc822;b", "ORCPT=rfc822;\xc3\xa4@d"})
    EXPECT_EQ(refusal("RCPT TO:<a@d> " + std::string(p)), "501 5.5.4") << p;
  for (std::string_view p : {"SIZE=1", "ORCP=rfc822;a", "RRVS=x"})
    EXPECT_EQ(refusal("RCPT TO:<a@d> " + std::string(p)), "555 5.5.4") << p;
}

// Every prefix of valid commands, and every byte in every position: no crash, and every refusal is a valid
// reply.
TEST(Command, AnyByteAnywhere) {
  auto expect_reply = [](const std::expected<Command, Reply>& command) {
    if (!command) {
      EXPECT_GE(command.error().code, 500);
    }
  };
  for (std::string_view line :
       {"MAIL FROM:<\"a\\b\"@[IPv6:::1]> SIZE=1 BODY=8BITMIME", "RCPT TO:<@a,@b:ann+x@d> ORCPT=rfc822;a+2Bb",
        "LHLO mx.example.org", "DATA"}) {
    for (std::size_t at = 0; at <= line.size(); ++at) {
      std::string cut(line.substr(0, at));
      expect_reply(parse_command(cut));
      for (int byte = 0; byte < 256 && at < line.size(); ++byte) {
        std::string changed(line);
        changed[at] = static_cast<char>(byte);
        expect_reply(parse_command(changed));
      }
    }
  }
}

}  // namespace
}  // namespace twinloft::lmtpd
