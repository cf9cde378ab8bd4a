#include "hop_reply.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

// The same replies for any split.
std::vector<HopReply> parsed(std::string_view input) {
  std::vector<HopReply> whole, trickled;
  ReplyParser at_once, byte_by_byte;
  at_once.feed(input);
  for (Result<std::optional<HopReply>> reply; (reply = at_once.next()) && *reply;)
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

TEST(ReplyParser, TakesRepliesOfOneLineAndOfSeveral) {
  auto replies = parsed("220 hello\r\n250-one\r\n250-\r\n250 SIZE 5\n354\r\n");
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_EQ(replies[0].text(), "220 hello");
  EXPECT_EQ(replies[1].lines, (std::vector<std::string>{"one", "", "SIZE 5"}));
  EXPECT_EQ(replies[2].code, 354);
}

TEST(ReplyParser, TellsWhatHasComeBehindTheLast) {
  ReplyParser parser;
  parser.feed("250 a\r\n250-b\r\n25");
  ASSERT_TRUE(*parser.next());
  EXPECT_FALSE(*parser.next());
  EXPECT_GT(parser.pending(), 0u);
  parser.feed("0 c\r\n");
  ASSERT_TRUE(*parser.next());
  EXPECT_EQ(parser.pending(), 0u);
}

TEST(ReplyParser, RefusesWhatIsNone) {
  for (std::string input :
       {std::string("hello\r\n"), std::string("999 x\r\n"), std::string("150 x\r\n"), std::string("25 x\r\n"),
        std::string("2500 x\r\n"), std::string("\r\n"), std::string("250-a\r\n251 b\r\n"),
        std::string(3000, 'x'), std::string("250 ") + std::string(3000, 'x') + "\r\n"}) {
    ReplyParser parser;
    parser.feed(input);
    auto reply = parser.next();
    ASSERT_FALSE(reply) << input.substr(0, 40);
    EXPECT_EQ(reply.error().code, Errc::corrupt);
  }
}

TEST(ReplyParser, BoundsTheLinesOfOneReply) {
  ReplyParser parser;
  Result<std::optional<HopReply>> reply = std::nullopt;
  for (int i = 0; i < 1000 && reply; ++i) {
    parser.feed("250-more\r\n");
    reply = parser.next();
  }
  EXPECT_FALSE(reply);
}

Reply mapped(int code, std::string text, Stage stage = Stage::message) {
  return reply_of_hop({code, {std::move(text)}}, stage);
}

TEST(ReplyOfHop, PassesOnWhatIsSaidOfTheMessage) {
  EXPECT_EQ(mapped(250, "2.0.0 saved"), (Reply{250, "2.0.0", "saved"}));
  EXPECT_EQ(mapped(251, "2.1.5 elsewhere").code, 250);
  EXPECT_EQ(mapped(550, "5.1.1 no such user", Stage::recipient), (Reply{550, "5.1.1", "no such user"}));
  EXPECT_EQ(mapped(552, "full"), (Reply{552, "5.0.0", "full"}));
  EXPECT_EQ(mapped(452, "4.2.2 full"), (Reply{452, "4.2.2", "full"}));
  EXPECT_EQ(mapped(556, "5.1.10 null mx", Stage::recipient).enhanced, "5.1.10");
}

TEST(ReplyOfHop, TakesNoEnhancedCodeOfAnotherClassOrOfAnotherForm) {
  for (const char* text : {"2.0.0 x", "5.1 x", "5.1.1x y", "5..1 x", "5.1.1000 x", "5.1.1. x", "5"})
    EXPECT_EQ(mapped(550, text).enhanced, "5.0.0") << text;
}

TEST(ReplyOfHop, NothingOfOursBouncesAMessage) {
  for (int code : {500, 501, 502, 503, 504, 521, 530, 535, 555})
    for (Stage stage : {Stage::sender, Stage::recipient, Stage::body, Stage::message})
      EXPECT_EQ(mapped(code, "5.5.1 x", stage).code, 451) << code;
}

TEST(ReplyOfHop, LeavingIsNotOurLeaving) {
  EXPECT_EQ(mapped(421, "4.3.2 bye").code, 451);
}

TEST(ReplyOfHop, WhatDoesNotBelongThereIsNoSuccess) {
  EXPECT_EQ(mapped(354, "go on").code, 451);
  EXPECT_EQ(mapped(250, "ok", Stage::body).code, 451);
}

TEST(ReplyOfHop, AGoodByeIsNoSuccess) {
  EXPECT_EQ(mapped(221, "2.0.0 bye").code, 451);
  EXPECT_EQ(mapped(200, "fine").code, 451);
  EXPECT_EQ(mapped(252, "2.0.0 will try").code, 250);
}

TEST(ReplyOfHop, TooManyRecipientsIsForAnotherTransaction) {
  Reply reply = mapped(552, "5.5.3 Too many recipients", Stage::recipient);
  EXPECT_EQ(reply.code, 452);
  EXPECT_EQ(reply.enhanced, "4.5.3");
  EXPECT_EQ(mapped(552, "5.2.2 Full", Stage::recipient).code, 552);
}

TEST(ReplyParser, AReplyHasABound) {
  ReplyParser parser;
  for (int i = 0; i < 20; ++i) parser.feed("250-" + std::string(1000, 'x') + "\r\n");
  EXPECT_FALSE(parser.next());
}

}  // namespace
}  // namespace twinloft::lmtpd
