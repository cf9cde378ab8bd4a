#include "twinloft/mailbench/imap_response.h"

#include <gtest/gtest.h>

namespace twinloft::mailbench {
namespace {

// The responses of the text, given in pieces of `step` bytes.
std::vector<ImapResponse> responses(std::string_view text, std::size_t step) {
  ImapResponseParser parser;
  std::vector<ImapResponse> out;
  for (std::size_t at = 0; at < text.size(); at += step) {
    for (std::string_view piece = text.substr(at, step); !piece.empty();) {
      auto complete = parser.feed(piece);
      if (!complete) {
        ADD_FAILURE() << complete.error().message;
        return out;
      }
      if (*complete) out.push_back(parser.response());
    }
  }
  return out;
}

ImapResponse one(std::string_view text) {
  auto all = responses(text, text.size());
  EXPECT_EQ(all.size(), 1u) << text;
  return all.empty() ? ImapResponse{} : all[0];
}

TEST(ImapResponse, LiteralsAreTakenWholeInEverySplit) {
  const std::string text =
      "* OK ready\r\n* 1 FETCH (UID 7 BODY[] {12}\r\na\r\n)\r\n* x {3} FLAGS ())\r\n* 2 FETCH (BODY[] "
      "{0}\r\n)\r\n"
      "* LIST () \"/\" {5}\r\na {9}\r\nm1 OK done\r\n";
  auto whole = responses(text, text.size());
  ASSERT_EQ(whole.size(), 5u);
  EXPECT_EQ(whole[0].text, "* OK ready");
  ASSERT_EQ(whole[1].literals.size(), 1u);
  EXPECT_EQ(whole[1].literals[0], "a\r\n)\r\n* x {3");
  EXPECT_EQ(whole[1].text, "* 1 FETCH (UID 7 BODY[] {12}\r\n} FLAGS ())");
  EXPECT_EQ(whole[2].literals.at(0), "");
  EXPECT_EQ(whole[3].literals.at(0), "a {9}");
  EXPECT_EQ(whole[4].text, "m1 OK done");
  for (std::size_t step = 1; step < 30; ++step) {
    auto split = responses(text, step);
    ASSERT_EQ(split.size(), whole.size()) << step;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(split[i].text, whole[i].text) << step;
      EXPECT_EQ(split[i].literals, whole[i].literals) << step;
    }
  }
}

TEST(ImapResponse, LimitsAreKept) {
  ImapResponseParser parser;
  std::string_view huge = "* 1 FETCH (BODY[] {99999999999}\r\n";
  EXPECT_FALSE(parser.feed(huge));
  ImapResponseParser many;
  std::string literals = "* 1 FETCH (";
  for (std::size_t i = 0; i <= ImapResponseParser::kLiteralsMax; ++i) literals += "X {1}\r\ny ";
  std::string_view all = literals;
  EXPECT_FALSE(many.feed(all));
  ImapResponseParser other;
  std::string line(ImapResponseParser::kLineMax + 1, 'x');
  std::string_view rest = line;
  EXPECT_FALSE(other.feed(rest));
}

// A text for people may end like a literal.
TEST(ImapResponse, TextsAreNoLiterals) {
  auto all = responses("* OK hello {5}\r\n* BYE {1}\r\nm1 NO [X] {12}\r\n* 1 EXISTS\r\n", 7);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].text, "* OK hello {5}");
  EXPECT_EQ(all[2].text, "m1 NO [X] {12}");
}

TEST(ImapFetched, TheContentInEachForm) {
  for (const char* text :
       {"* 12 FETCH (BODY[] {4}\r\na\"(b UID 3)\r\n", "* 12 fetch (FLAGS (\\Seen) body[] \"a\\\"(b\")\r\n",
        "* 12 FETCH (BODY[HEADER.FIELDS (TO FROM)] \"x\" BODY[] ~{4}\r\na\"(b)\r\n"}) {
    auto fetched = imap_fetched(one(text));
    ASSERT_TRUE(fetched) << fetched.error().message;
    ASSERT_TRUE(*fetched) << text;
    EXPECT_EQ((*fetched)->number, 12u);
    EXPECT_EQ((*fetched)->content, "a\"(b") << text;
  }
  auto empty = imap_fetched(one("* 1 FETCH (BODY[] NIL)\r\n"));
  ASSERT_TRUE(empty && *empty);
  EXPECT_EQ((*empty)->content, "");
  for (const char* text : {"* 3 FETCH (FLAGS (\\Recent))\r\n", "* 5 EXISTS\r\n", "* OK FETCH\r\n",
                           "m1 OK FETCH\r\n", "*\r\n", "\r\n"})
    EXPECT_EQ(imap_fetched(one(text))->has_value(), false) << text;
  EXPECT_FALSE(imap_fetched(one("* 1 FETCH (BODY[] \"open)\r\n")));
}

TEST(ImapListed, Names) {
  EXPECT_EQ(imap_listed(one("* LIST (\\HasNoChildren) \"/\" INBOX\r\n"))->value(), "INBOX");
  EXPECT_EQ(imap_listed(one("* list () NIL \"a \\\"b\\\\\"\r\n"))->value(), "a \"b\\");
  EXPECT_EQ(imap_listed(one("* LIST () \".\" {6}\r\nx (y) \r\n"))->value(), "x (y) ");
  EXPECT_FALSE(imap_listed(one("* LIST (\\Noselect \\HasChildren) \"/\" a\r\n"))->has_value());
  EXPECT_FALSE(imap_listed(one("* FLAGS (\\Seen)\r\n"))->has_value());
  EXPECT_FALSE(imap_listed(one("* LIST () \"/\"\r\n")));
  EXPECT_FALSE(imap_listed(one("* LIST\r\n")));
}

TEST(ImapQuoted, WhatCannotBeQuotedIsRefused) {
  EXPECT_EQ(imap_quoted("a \"b\\").value(), "\"a \\\"b\\\\\"");
  for (std::string text : {"a\nb", "a\rb", "\xc3\xa4"}) EXPECT_FALSE(imap_quoted(text));
  EXPECT_FALSE(imap_quoted(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace twinloft::mailbench
