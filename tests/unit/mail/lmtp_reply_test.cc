#include "twinloft/mail/lmtp_reply.h"

#include <gtest/gtest.h>

namespace twinloft::mail {
namespace {

// Checks that every split gives the same replies.
std::vector<LmtpReply> parsed(std::string_view input) {
  std::vector<LmtpReply> whole, trickled;
  LmtpReplyParser at_once, byte_by_byte;
  at_once.feed(input);
  for (Result<std::optional<LmtpReply>> reply; (reply = at_once.next()) && *reply;)
    whole.push_back(std::move(**reply));
  for (char c : input) {
    byte_by_byte.feed({&c, 1});
    if (auto reply = byte_by_byte.next(); reply && *reply) trickled.push_back(std::move(**reply));
  }
  EXPECT_EQ(whole.size(), trickled.size());
  for (std::size_t i = 0; i < std::min(whole.size(), trickled.size()); ++i)
    EXPECT_EQ(whole[i].text(), trickled[i].text());
  return whole;
}

TEST(LmtpReplyParser, TakesRepliesOfOneLineAndOfSeveral) {
  auto replies = parsed("220 hello\r\n250-one\r\n250-\r\n250 SIZE 5\n354\r\n");
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_EQ(replies[0].text(), "220 hello");
  EXPECT_EQ(replies[1].lines, (std::vector<std::string>{"one", "", "SIZE 5"}));
  EXPECT_EQ(replies[2].code, 354);
}

TEST(LmtpReplyParser, TellsWhatHasComeBehindTheLast) {
  LmtpReplyParser parser;
  parser.feed("250 a\r\n250-b\r\n25");
  ASSERT_TRUE(*parser.next());
  EXPECT_FALSE(*parser.next());
  EXPECT_GT(parser.pending(), 0u);
  parser.feed("0 c\r\n");
  ASSERT_TRUE(*parser.next());
  EXPECT_EQ(parser.pending(), 0u);
}

TEST(LmtpReplyParser, RefusesWhatIsNone) {
  for (std::string input :
       {std::string("hello\r\n"), std::string("999 x\r\n"), std::string("150 x\r\n"), std::string("25 x\r\n"),
        std::string("2500 x\r\n"), std::string("\r\n"), std::string("250-a\r\n251 b\r\n"),
        std::string(3000, 'x'), std::string("250 ") + std::string(3000, 'x') + "\r\n"}) {
    LmtpReplyParser parser;
    parser.feed(input);
    auto reply = parser.next();
    ASSERT_FALSE(reply) << input.substr(0, 40);
    EXPECT_EQ(reply.error().code, Errc::corrupt);
  }
}

TEST(LmtpReplyParser, BoundsTheLinesOfOneReply) {
  LmtpReplyParser parser;
  Result<std::optional<LmtpReply>> reply = std::nullopt;
  for (int i = 0; i < 1000 && reply; ++i) {
    parser.feed("250-more\r\n");
    reply = parser.next();
  }
  EXPECT_FALSE(reply);
}

TEST(LmtpReplyParser, AReplyHasABound) {
  LmtpReplyParser parser;
  for (int i = 0; i < 20; ++i) parser.feed("250-" + std::string(1000, 'x') + "\r\n");
  EXPECT_FALSE(parser.next());
}

}  // namespace
}  // namespace twinloft::mail
