#include "twinloft/lmtpd/milter/conversation.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd::milter {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

std::string agreement(std::uint32_t version, std::uint32_t rights, std::uint32_t wishes) {
  std::string data;
  append_number(data, version);
  append_number(data, rights);
  append_number(data, wishes);
  return data;
}

struct ConversationTest : testing::Test {
  Conversation conversation;
  std::string sent;

  void agree(std::uint32_t wishes = 0, std::uint32_t rights = may::all, std::uint32_t version = 6) {
    EXPECT_EQ(conversation.open(), offer());
    EXPECT_TRUE(std::holds_alternative<Ready>(hear(command::negotiate, agreement(version, rights, wishes))));
  }
  Heard hear(char kind, std::string_view data = {}) {
    auto heard = conversation.hear({kind, data});
    EXPECT_TRUE(heard) << heard.error().message;
    return heard ? *heard : Heard(Progress{});
  }
  std::string error(char kind, std::string_view data = {}) {
    auto heard = conversation.hear({kind, data});
    EXPECT_FALSE(heard);
    EXPECT_TRUE(conversation.is_broken());
    return heard ? "" : heard.error().message;
  }
  // The kinds of the packets for the event.
  std::string say(const Event& event, std::optional<Verdict>* verdict = nullptr) {
    sent.clear();
    auto told = conversation.say(event, {{"i", "1"}}, sent);
    if (verdict) *verdict = told;
    return kinds();
  }
  std::string kinds() const {
    PacketReader reader;
    reader.add(sent);
    std::string kinds;
    while (auto packet = reader.next().value()) kinds += packet->kind;
    return kinds;
  }
  Verdict ask(const Event& event, char kind, std::string_view data = {}) {
    std::optional<Verdict> told;
    say(event, &told);
    EXPECT_FALSE(told) << "no answer is awaited";
    Heard heard = hear(kind, data);
    const Verdict* verdict = std::get_if<Verdict>(&heard);
    EXPECT_TRUE(verdict);
    return verdict ? *verdict : Verdict(Continue{});
  }
  void pass(const Event& event) { EXPECT_EQ(ask(event, answer::continue_), Verdict(Continue{})); }
  Verdict known(const Event& event) {
    std::optional<Verdict> told;
    EXPECT_EQ(say(event, &told), "") << "the filter gets the event";
    EXPECT_TRUE(told);
    return told.value_or(Continue{});
  }
  std::string abort() {
    sent.clear();
    conversation.abort(sent);
    return kinds();
  }
  void begin_message() {
    pass(Mail{"a@b.example", {}});
    pass(Rcpt{"c@d.example", {}, false});
  }
};

TEST_F(ConversationTest, AWholeMessage) {
  agree();
  pass(Connect{});
  pass(Helo{});
  EXPECT_EQ(say(Mail{}), "DM") << "macros precede their event";
  hear(answer::continue_);
  pass(Rcpt{});
  pass(Data{});
  EXPECT_EQ(say(Header{"A", "b"}), "L");
  hear(answer::continue_);
  pass(EndOfHeaders{});
  pass(BodyChunk{"body"});
  EXPECT_EQ(say(EndOfBody{}), "DE");
  EXPECT_TRUE(std::holds_alternative<Progress>(hear(answer::progress)));
  EXPECT_EQ(std::get<Change>(hear(answer::add_header, "X\0y\0"sv)), Change(AddHeader{"X", "y"}));
  EXPECT_TRUE(conversation.awaits_answer());
  EXPECT_EQ(std::get<Verdict>(hear(answer::accept)), Verdict(Accept{}));
  EXPECT_FALSE(conversation.in_message());
  pass(Mail{});  // the next message
}

TEST_F(ConversationTest, SilentEventsNeedNoAnswer) {
  agree(wish::silent_mail | wish::no_rcpt);
  std::optional<Verdict> verdict;
  EXPECT_EQ(say(Mail{}, &verdict), "DM");
  EXPECT_EQ(verdict, Verdict(Continue{}));
  EXPECT_EQ(known(Rcpt{}), Verdict(Continue{}));
}

TEST_F(ConversationTest, AnAcceptedMessageIsNotShownAnyMore) {
  agree();
  EXPECT_EQ(ask(Mail{}, answer::accept), Verdict(Accept{}));
  EXPECT_EQ(known(Rcpt{}), Verdict(Continue{}));
  EXPECT_EQ(known(Data{}), Verdict(Continue{}));
  std::optional<Verdict> verdict;
  say(EndOfBody{}, &verdict);
  EXPECT_EQ(verdict, Verdict(Continue{}));
  EXPECT_FALSE(conversation.in_message());
  pass(Mail{});
  pass(Rcpt{});
}

TEST_F(ConversationTest, AnAcceptedClientIsNotShownAnyMore) {
  agree();
  EXPECT_EQ(ask(Connect{}, answer::accept), Verdict(Accept{}));
  EXPECT_EQ(known(Helo{}), Verdict(Continue{}));
  EXPECT_EQ(known(Mail{}), Verdict(Continue{}));
  EXPECT_EQ(known(EndOfBody{}), Verdict(Continue{}));
}

TEST_F(ConversationTest, ARefusedClientIsRefusedWithEachMessage) {
  agree();
  EXPECT_EQ(ask(Connect{}, answer::reply_code, "550 5.7.1 not you\0"sv),
            Verdict(FilterReply{550, "5.7.1", {"not you"}}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(known(Mail{}), Verdict(FilterReply{550, "5.7.1", {"not you"}}));
    EXPECT_EQ(abort(), "");
  }
  EXPECT_TRUE(conversation.quit_for_another_client(sent));
  pass(Connect{});
  pass(Mail{});
}

TEST_F(ConversationTest, ARefusedRecipientLeavesTheMessage) {
  agree();
  pass(Mail{});
  EXPECT_EQ(ask(Rcpt{}, answer::reject), Verdict(Reject{}));
  EXPECT_EQ(ask(Rcpt{}, answer::tempfail), Verdict(Tempfail{}));
  pass(Rcpt{});
  EXPECT_EQ(ask(Rcpt{}, answer::discard), Verdict(Discard{})) << "this verdict is about the message";
  EXPECT_EQ(known(Rcpt{}), Verdict(Discard{}));
}

TEST_F(ConversationTest, ARefusedMessageIsOverForTheFilter) {
  agree();
  begin_message();
  EXPECT_EQ(ask(Data{}, answer::tempfail), Verdict(Tempfail{}));
  EXPECT_EQ(known(Header{}), Verdict(Tempfail{}));
  EXPECT_EQ(abort(), "A");
  pass(Mail{});
}

TEST_F(ConversationTest, AbortIsSentOnceAndOnlyWithinAMessage) {
  agree();
  EXPECT_EQ(abort(), "");
  begin_message();
  EXPECT_EQ(abort(), "A");
  EXPECT_EQ(abort(), "");
}

TEST_F(ConversationTest, AFilterThatHasSeenNothingOfAMessageIsNotTold) {
  agree(wish::no_mail | wish::no_rcpt);
  EXPECT_EQ(known(Mail{}), Verdict(Continue{}));
  EXPECT_EQ(abort(), "");
}

TEST_F(ConversationTest, SkipEndsTheKindOfEventInThisMessage) {
  agree(wish::may_skip);
  begin_message();
  pass(Data{});
  EXPECT_EQ(ask(Header{}, answer::skip), Verdict(Continue{}));
  EXPECT_EQ(known(Header{}), Verdict(Continue{}));
  pass(EndOfHeaders{});
  EXPECT_EQ(ask(BodyChunk{"a"}, answer::skip), Verdict(Continue{}));
  EXPECT_EQ(known(BodyChunk{"b"}), Verdict(Continue{}));
  pass(EndOfBody{});
  begin_message();
  pass(BodyChunk{"c"});
}

TEST_F(ConversationTest, SkipMustBeAnnouncedAndPossible) {
  agree(0);
  begin_message();
  say(BodyChunk{"a"});
  EXPECT_EQ(error(answer::skip), "the filter skips what it has not announced, or cannot skip");
}

TEST_F(ConversationTest, ChangesComeAtTheEndOfTheMessageOnly) {
  agree();
  say(Mail{});
  EXPECT_EQ(error(answer::add_header, "X\0y\0"sv), "a change before the end of the message");
}

TEST_F(ConversationTest, ChangesNeedTheirRight) {
  agree(0, may::change_headers);
  begin_message();
  say(EndOfBody{});
  EXPECT_TRUE(std::holds_alternative<Change>(hear(answer::change_header, "\0\0\0\1X\0y\0"sv)));
  EXPECT_EQ(error(answer::add_header, "X\0y\0"sv),
            "a change that the filter has not announced in the negotiation");
}

TEST_F(ConversationTest, AnAnswerThatNothingAskedForBreaksIt) {
  agree();
  EXPECT_EQ(error(answer::continue_), "the filter says something that nothing asked for");
}

TEST_F(ConversationTest, TheNegotiationMustBeAnswered) {
  conversation.open();
  EXPECT_EQ(error(answer::continue_), "no answer to the negotiation");
}

TEST_F(ConversationTest, AnOldFilterNeedsAConnectionForEachClient) {
  agree(0, may::all, 2);
  std::string out;
  EXPECT_FALSE(conversation.quit_for_another_client(out));
  EXPECT_EQ(out, "");
  begin_message();
  EXPECT_EQ(known(Data{}), Verdict(Continue{})) << "version 2 does not know this event";
}

}  // namespace
}  // namespace twinloft::lmtpd::milter
