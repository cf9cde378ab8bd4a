#include "twinloft/lmtpd/proto/reply.h"

#include <gtest/gtest.h>

#include <string>

namespace twinloft::lmtpd {
namespace {

std::string on_the_wire(const Reply& reply) {
  std::string out = "before\r\n";
  append_reply(out, reply);
  EXPECT_TRUE(out.starts_with("before\r\n"));
  return out.substr(8);
}

TEST(Reply, OnTheWire) {
  EXPECT_EQ(on_the_wire(make_reply(250, "2.1.5", "Ok")), "250 2.1.5 Ok\r\n");
  EXPECT_EQ(on_the_wire(make_reply(354, "", "Go on")), "354 Go on\r\n");
}

TEST(Reply, IsPositiveBelow400) {
  EXPECT_TRUE(make_reply(250, "", "").positive());
  EXPECT_TRUE(make_reply(354, "", "").positive());
  EXPECT_FALSE(make_reply(421, "", "").positive());
  EXPECT_FALSE(make_reply(550, "", "").positive());
}

// An agent's output line becomes part of a reply. It must not add a line to the reply.
TEST(Reply, NoTextEndsTheLine) {
  for (const std::string& text :
       {std::string("no\r\n250 2.0.0 yes"), std::string("a\nb"), std::string("a\rb"), std::string("a\0b", 3),
        std::string("\x1b[2J"), std::string("\xc3\xa4"), std::string("\x7f")}) {
    for (const Reply& reply : {make_reply(550, "5.7.1", text), Reply{550, "5.7.1", text}}) {
      std::string line = on_the_wire(reply);
      ASSERT_TRUE(line.starts_with("550 5.7.1 ") && line.ends_with("\r\n"));
      for (char c : line.substr(0, line.size() - 2)) EXPECT_TRUE(c >= 32 && c <= 126) << text;
    }
  }
  EXPECT_EQ(make_reply(550, "5.7.1", "a\tb").text, "a b");
  EXPECT_EQ(on_the_wire(Reply{550, "5.7.1", "a\tb"}), "550 5.7.1 a b\r\n");
}

TEST(Reply, OfPartsIsThatOfTheWhole) {
  for (const Reply& reply : {make_reply(250, "2.1.5", "Ok"), make_reply(354, "", "Go on"),
                             Reply{550, "5.7.1", "a\r\n\tb"}, Reply{550, "5.7.1", std::string(2000, 'x')}}) {
    std::string parts;
    append_reply(parts, reply.code, reply.enhanced, reply.text);
    EXPECT_EQ(parts, on_the_wire(reply));
  }
}

TEST(Reply, NoEnhancedCodeEndsTheLine) {
  EXPECT_EQ(on_the_wire(Reply{550, "5.1\r\n", "x"}), "550 5.1?? x\r\n");
}

// RFC 5321 section 4.5.3.1.5: 512 bytes with the line end.
TEST(Reply, IsCutToALine) {
  std::string text(2000, 'x');
  std::string line = on_the_wire(make_reply(550, "5.7.1", text));
  EXPECT_LE(line.size(), 512u);
  EXPECT_GE(line.size(), 400u);
  EXPECT_TRUE(line.ends_with("x\r\n"));
  EXPECT_LE(on_the_wire(Reply{550, "5.7.1", text}).size(), 512u);
}

TEST(Reply, Lines) {
  std::string out;
  append_reply_lines(out, 250, {"mx.example.org", "PIPELINING", "SIZE 10"});
  EXPECT_EQ(out, "250-mx.example.org\r\n250-PIPELINING\r\n250 SIZE 10\r\n");
  out.clear();
  append_reply_lines(out, 250, {"only\r\none"});
  EXPECT_EQ(out, "250 only??one\r\n");
}

TEST(Reply, SeveralLinesHaveTheCodesInEach) {
  Reply reply = make_reply_of_lines(550, "5.7.1", {"first", "sec\r\nond", "last"});
  EXPECT_EQ(on_the_wire(reply), "550-5.7.1 first\r\n550-5.7.1 sec??ond\r\n550 5.7.1 last\r\n");
  EXPECT_EQ(on_the_wire(make_reply_of_lines(550, "5.7.1", {""})), "550 5.7.1 \r\n");
  auto many = make_reply_of_lines(550, "5.7.1", std::vector<std::string>(1000, "x"));
  EXPECT_EQ(many.further.size() + 1, reply_lines_max);
}

}  // namespace
}  // namespace twinloft::lmtpd
