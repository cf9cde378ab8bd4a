#include "twinloft/lmtpd/milter/answers.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd::milter {
namespace {

using namespace std::string_view_literals;

Answer parsed(char kind, std::string_view data = {}) {
  auto answer = parse_answer({kind, data});
  EXPECT_TRUE(answer) << answer.error().message;
  return answer ? *answer : Answer(Progress{});
}

std::string error_of(char kind, std::string_view data = {}) {
  auto answer = parse_answer({kind, data});
  EXPECT_FALSE(answer);
  return answer ? "" : answer.error().message;
}

TEST(Answers, VerdictsAndSigns) {
  EXPECT_EQ(parsed('c'), Answer(Verdict(Continue{})));
  EXPECT_EQ(parsed('a'), Answer(Verdict(Accept{})));
  EXPECT_EQ(parsed('r'), Answer(Verdict(Reject{})));
  EXPECT_EQ(parsed('t'), Answer(Verdict(Tempfail{})));
  EXPECT_EQ(parsed('d'), Answer(Verdict(Discard{})));
  EXPECT_EQ(parsed('4'), Answer(Verdict(EndConnection{})));
  EXPECT_EQ(parsed('f'), Answer(Verdict(EndConnection{})));
  EXPECT_EQ(parsed('s'), Answer(Skip{}));
  EXPECT_EQ(parsed('p'), Answer(Progress{}));
}

TEST(Answers, Changes) {
  EXPECT_EQ(parsed('h', "X-A\0b\0"sv), Answer(Change(AddHeader{"X-A", "b"})));
  EXPECT_EQ(parsed('i', "\0\0\0\1X-A\0b\0"sv), Answer(Change(InsertHeader{1, "X-A", "b"})));
  EXPECT_EQ(parsed('m', "\0\0\0\2Subject\0new\0"sv), Answer(Change(ChangeHeader{2, "Subject", "new"})));
  EXPECT_EQ(parsed('m', "\0\0\0\1Subject\0\0"sv), Answer(Change(ChangeHeader{1, "Subject", ""})));
  EXPECT_EQ(parsed('m', "\0\0\0\1Subject\0"sv), Answer(Change(ChangeHeader{1, "Subject", ""})));
  EXPECT_EQ(parsed('b', "a\0b"sv), Answer(Change(ReplaceBody{std::string("a\0b", 3)})));
  EXPECT_EQ(parsed('e', "<a@b.example>\0"sv), Answer(Change(ChangeSender{"<a@b.example>", ""})));
  EXPECT_EQ(parsed('e', "<>\0SIZE=3\0"sv), Answer(Change(ChangeSender{"<>", "SIZE=3"})));
  EXPECT_EQ(parsed('+', "<a@b.example>\0"sv), Answer(Change(AddRecipient{"<a@b.example>", ""})));
  EXPECT_EQ(parsed('2', "<a@b.example>\0NOTIFY=NEVER\0"sv),
            Answer(Change(AddRecipient{"<a@b.example>", "NOTIFY=NEVER"})));
  EXPECT_EQ(parsed('-', "<a@b.example>\0"sv), Answer(Change(RemoveRecipient{"<a@b.example>"})));
  EXPECT_EQ(parsed('q', "spam\0"sv), Answer(Change(Quarantine{"spam"})));
}

FilterReply reply(std::string_view text) {
  Answer answer = parsed('y', text);
  const FilterReply* found = std::get_if<FilterReply>(&std::get<Verdict>(answer));
  EXPECT_TRUE(found);
  return found ? *found : FilterReply{};
}

TEST(Answers, RepliesOfTheFiltersOwn) {
  EXPECT_EQ(reply("550 5.7.1 spam\0"sv), (FilterReply{550, "5.7.1", {"spam"}}));
  EXPECT_EQ(reply("451 try later\0"sv), (FilterReply{451, "", {"try later"}}));
  EXPECT_EQ(reply("554-5.7.1 one\r\n554-5.7.1 two\r\n554 5.7.1 three\0"sv),
            (FilterReply{554, "5.7.1", {"one", "two", "three"}}));
  EXPECT_EQ(reply("421\0"sv), (FilterReply{421, "", {""}}));
}

TEST(Answers, APercentSignIsWrittenTwice) {
  EXPECT_EQ(reply("550 5.7.1 100%% spam, 1% of %%%%\0"sv).lines[0], "100% spam, 1% of %%");
}

// A refusal with a slip in its form must not become a failure, whose default action may be to accept.
TEST(Answers, ARefusalWithASlipInItsFormIsARefusal) {
  EXPECT_EQ(reply("550 4.7.1 no\0"sv), (FilterReply{550, "", {"4.7.1 no"}}));
  EXPECT_EQ(reply("550 1.2.3 is old\0"sv), (FilterReply{550, "", {"1.2.3 is old"}}));
  EXPECT_EQ(reply("550-5.7.1 a\r\n450 4.7.1 b\0"sv), (FilterReply{550, "5.7.1", {"a", "4.7.1 b"}}));
}

TEST(Answers, RepliesThatNoReplyCanBe) {
  EXPECT_EQ(error_of('y', "250 2.0.0 ok\0"sv), "a reply has the code 250, which is neither 4xx nor 5xx");
  EXPECT_EQ(error_of('y', "354 go\0"sv), "a reply has the code 354, which is neither 4xx nor 5xx");
  EXPECT_EQ(error_of('y', "spam\0"sv), "a line of a reply has no code");
  EXPECT_EQ(error_of('y', "5501 spam\0"sv), "a line of a reply has no code");
  EXPECT_EQ(error_of('y', "\0"sv), "a reply without a code");
}

TEST(Answers, MalformedOnesAreRefused) {
  EXPECT_EQ(error_of('z'), "an answer of the unknown kind \"z\"");
  EXPECT_EQ(error_of('\x01'), "an answer of the unknown kind number 1");
  EXPECT_EQ(error_of('h', "X-A\0"sv), "an answer of the kind \"h\" is too short");
  EXPECT_EQ(error_of('h', "X-A\0b\0c\0"sv), "an answer of the kind \"h\" has surplus data");
  EXPECT_EQ(error_of('+'), "an answer of the kind \"+\" is too short");
  for (std::string_view name : {"\0"sv, "X A\0"sv, "X:\0"sv, "X\r\n\0"sv, "X\xff\0"sv})
    EXPECT_EQ(error_of('h', std::string(name) + "b"),
              "a header field's name is empty, or has a blank, a colon or a control character");
}

TEST(Answers, EachChangeNeedsARight) {
  EXPECT_EQ(rights_for(AddHeader{}), may::add_headers);
  EXPECT_EQ(rights_for(InsertHeader{}), may::add_headers);
  EXPECT_EQ(rights_for(ChangeHeader{}), may::change_headers);
  EXPECT_EQ(rights_for(ReplaceBody{}), may::replace_body);
  EXPECT_EQ(rights_for(ChangeSender{}), may::change_sender);
  EXPECT_EQ(rights_for(AddRecipient{"<a>", ""}), may::add_recipients | may::add_recipients_with_parameters);
  EXPECT_EQ(rights_for(AddRecipient{"<a>", "x"}), may::add_recipients_with_parameters);
  EXPECT_EQ(rights_for(RemoveRecipient{}), may::remove_recipients);
  EXPECT_EQ(rights_for(Quarantine{}), may::quarantine);
}

}  // namespace
}  // namespace twinloft::lmtpd::milter
