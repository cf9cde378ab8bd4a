#include "hop_reply.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

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

}  // namespace
}  // namespace twinloft::lmtpd
