#include "twinloft/lmtpd/milter/events.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd::milter {
namespace {

using namespace std::string_literals;

std::string bytes_of(const Event& event) {
  std::string out;
  append_event(out, event);
  return out;
}

TEST(Events, GoldenBytes) {
  EXPECT_EQ(bytes_of(Connect{"mx.example", Connect::Family::ipv4, 25, "192.0.2.1"}),
            "\0\0\0\x19"
            "Cmx.example\0"
            "4\0\x19"
            "192.0.2.1\0"s);
  EXPECT_EQ(bytes_of(Connect{"unknown", Connect::Family::unknown, 0, ""}),
            "\0\0\0\x0a"
            "Cunknown\0U"s);
  EXPECT_EQ(bytes_of(Helo{"mx.example"}), "\0\0\0\x0cHmx.example\0"s);
  EXPECT_EQ(bytes_of(Mail{"a@b.example", {"SIZE=10", "BODY=8BITMIME"}}),
            "\0\0\0\x25M<a@b.example>\0SIZE=10\0BODY=8BITMIME\0"s);
  EXPECT_EQ(bytes_of(Mail{"", {}}), "\0\0\0\x04M<>\0"s);
  EXPECT_EQ(bytes_of(Rcpt{"c@d.example", {}, false}), "\0\0\0\x0fR<c@d.example>\0"s);
  EXPECT_EQ(bytes_of(Data{}), "\0\0\0\x01T"s);
  EXPECT_EQ(bytes_of(Header{"Subject", "hello\n\tworld"}), "\0\0\0\x16LSubject\0hello\n\tworld\0"s);
  EXPECT_EQ(bytes_of(EndOfHeaders{}), "\0\0\0\x01N"s);
  EXPECT_EQ(bytes_of(BodyChunk{"a\r\n"}),
            "\0\0\0\x04"
            "Ba\r\n"s);
  EXPECT_EQ(bytes_of(EndOfBody{}),
            "\0\0\0\x01"
            "E"s);
}

// libmilter ends the connection at a larger packet.
TEST(Events, ALongFieldIsCutToOnePacket) {
  std::string value(200'000, 'v'), name(100'000, 'n');
  std::string with_value = bytes_of(Header{"X", value}), with_both = bytes_of(Header{name, value});
  EXPECT_EQ(with_value.size(), 5 + data_bytes_max);
  EXPECT_EQ(with_both.size(), 5 + data_bytes_max);
  EXPECT_TRUE(with_value.ends_with("vv\0"s));
}

TEST(Events, MacrosPrecedeTheirCommand) {
  std::string out;
  Macros values = {{"i", "4711"}, {"{mail_addr}", "a@b.example"}, {"j", "mx.example"}};
  append_macros(out, Mail{}, {"i", "{mail_addr}", "{auth_type}"}, values);
  EXPECT_EQ(out,
            "\0\0\0\x21"
            "DMi\0"
            "4711\0{mail_addr}\0a@b.example\0"s);
  out.clear();
  append_macros(out, Mail{}, {"{auth_type}"}, values);
  EXPECT_EQ(out, "") << "no macro has a value";
}

TEST(Events, AMacroThatFitsNoPacketIsLeftOut) {
  std::string out;
  append_macros(out, Mail{}, {"i", "j"}, {{"i", std::string(data_bytes_max, 'x')}, {"j", "mx"}});
  EXPECT_EQ(out,
            "\0\0\0\x07"
            "DMj\0mx\0"s);
}

TEST(Events, EachStageHasUsualMacros) {
  EXPECT_EQ(usual_macros(MacroStage::mail)[0], "i");
  EXPECT_EQ(usual_macros(MacroStage::rcpt), (MacroNames{"{rcpt_addr}", "{rcpt_host}", "{rcpt_mailer}"}));
  EXPECT_EQ(macro_stage_of(EndOfBody{}), MacroStage::end_of_body);
  EXPECT_EQ(macro_stage_of(Header{}), std::nullopt);
}

// A NUL byte in a message must not hide what follows.
TEST(Events, ANulByteHidesNothing) {
  std::string out;
  append_event(out, Header{"Subject", std::string_view("ok\0spam", 7)});
  EXPECT_NE(out.find(std::string("ok?spam\0", 8)), std::string::npos);
}

}  // namespace
}  // namespace twinloft::lmtpd::milter
