#include "twinloft/mailbench/reply.h"

#include <gtest/gtest.h>

namespace twinloft::mailbench {
namespace {

// All replies in `text`, fed in pieces of `step` bytes. After an error, its message is the last entry.
std::vector<std::string> parse(std::string_view text, std::size_t step) {
  ReplyParser parser;
  std::vector<std::string> out;
  while (!text.empty()) {
    std::string_view piece = text.substr(0, step);
    text.remove_prefix(piece.size());
    while (!piece.empty()) {
      auto whole = parser.feed(piece);
      if (!whole) {
        out.push_back("error: " + whole.error().message);
        return out;
      }
      if (!*whole) continue;
      std::string shown = std::to_string(parser.reply().code);
      for (const std::string& line : parser.reply().lines) shown += "|" + line;
      out.push_back(shown);
    }
  }
  return out;
}

class ReplyTest : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Splits, ReplyTest, testing::Values(SIZE_MAX, 1, 2, 3, 7));

using Replies = std::vector<std::string>;

TEST_P(ReplyTest, SingleAndMultiLine) {
  EXPECT_EQ(parse("220 hello\r\n250-one\r\n250-two 2\r\n250 three\r\n354 go\r\n", GetParam()),
            (Replies{"220|hello", "250|one|two 2|three", "354|go"}));
}

TEST_P(ReplyTest, ShortFormsAndBareLineFeeds) {
  EXPECT_EQ(parse("250\r\n250 \r\n250-\n250\n", GetParam()), (Replies{"250|", "250|", "250||"}));
}

TEST_P(ReplyTest, NotAReply) {
  for (std::string_view bad :
       {"hello\r\n", "25 ok\r\n", "150 no\r\n", "650 no\r\n", "250_ok\r\n", "2x0 ok\r\n", "\r\n"}) {
    auto got = parse(bad, GetParam());
    ASSERT_EQ(got.size(), 1u) << bad;
    EXPECT_TRUE(got[0].starts_with("error: ")) << bad;
  }
}

TEST_P(ReplyTest, TheCodeMustNotChangeWithinAReply) {
  EXPECT_EQ(parse("250-a\r\n251 b\r\n", GetParam()),
            (Replies{"error: the server changed the code from 250 to 251 within one reply"}));
}

TEST_P(ReplyTest, LimitsHold) {
  std::string longest(ReplyParser::kLineMax - 5, 'x');
  EXPECT_EQ(parse("250 " + longest + "\r\n", GetParam()).at(0).substr(0, 4), "250|");
  EXPECT_TRUE(parse("250 " + longest + "xx\r\n", GetParam()).at(0).starts_with("error: "));
  std::string lines;
  for (std::size_t i = 0; i <= ReplyParser::kLinesMax; ++i) lines += "250-x\r\n";
  EXPECT_TRUE(parse(lines, GetParam()).at(0).starts_with("error: "));
}

TEST_P(ReplyTest, AnUnfinishedReplyIsNone) {
  EXPECT_EQ(parse("250-a\r\n250 b", GetParam()), Replies{});
}

}  // namespace
}  // namespace twinloft::mailbench
