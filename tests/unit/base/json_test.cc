#include "twinloft/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace twinloft {
namespace {

TEST(IndentedJson, IsAMemberALineInTheirOrder) {
  json::object root{
      {"name", "a\"b\\c"}, {"count", 3u}, {"ratio", 0.5}, {"whole", 5.0}, {"none", std::nan("")}};
  root["list"] = json::array{1, json::object{}, json::array{}, nullptr};
  root["yes"] = true;
  EXPECT_EQ(indented_json(root),
            "{\n  \"name\": \"a\\\"b\\\\c\",\n  \"count\": 3,\n  \"ratio\": 0.5,\n  \"whole\": 5,\n  "
            "\"none\": null,\n"
            "  \"list\": [\n    1,\n    {},\n    [],\n    null\n  ],\n  \"yes\": true\n}\n");
}

TEST(IndentedJson, IntegersAreNotRounded) {
  json::object root{{"bytes", std::numeric_limits<std::uint64_t>::max()},
                    {"below", std::numeric_limits<std::int64_t>::min()}};
  EXPECT_EQ(indented_json(root),
            "{\n  \"bytes\": 18446744073709551615,\n  \"below\": -9223372036854775808\n}\n");
}

TEST(IndentedJson, IsReadAsItWasWritten) {
  json::object root{{"key \n\"", json::array{"text\x01\t", 1.25, -7}}, {"empty", ""}};
  auto read = parse_object(indented_json(root));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, root);
}

TEST(JsonText, BytesThatNeedNotBeTextBecomeCharacters) {
  EXPECT_EQ(json_text("plain"), "plain");
  EXPECT_EQ(json_text("a\xff\x80"), "a\xc3\xbf\xc2\x80");
  EXPECT_EQ(json::serialize(json::value(json_text("\xe9\n\""))), "\"\xc3\xa9\\n\\\"\"");
}

TEST(ParseObject, TakesOneObjectAndNothingElse) {
  EXPECT_TRUE(parse_object(R"({"a": {"b": [1]}})"));
  for (const char* text : {"", "[]", "1", "{", "{} {}", R"({"a": })", "nul"}) {
    auto read = parse_object(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Errc::corrupt);
  }
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += R"({"a":)";
  EXPECT_FALSE(parse_object(deep + "1" + std::string(40, '}'))) << "the depth is limited";
}

TEST(UnsignedOf, NumbersOnly) {
  EXPECT_EQ(unsigned_of(json::value(7)), 7u);
  EXPECT_EQ(unsigned_of(json::value(std::numeric_limits<std::uint64_t>::max())),
            std::numeric_limits<std::uint64_t>::max());
  for (const json::value& none :
       {json::value(-1), json::value(1.5), json::value("7"), json::value(true), json::value()})
    EXPECT_EQ(unsigned_of(none), std::nullopt);
}

}  // namespace
}  // namespace twinloft
