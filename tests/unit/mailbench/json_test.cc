#include "twinloft/mailbench/json.h"

#include <gtest/gtest.h>

#include <cmath>

namespace twinloft::mailbench {
namespace {

TEST(JsonWriter, NestsAndEscapes) {
  JsonWriter json;
  json.open_object();
  json.text("name", "a\"b\\c\n\xff");
  json.number("count", 3u);
  json.number("ratio", 0.5);
  json.number("none", std::nan(""));
  json.open_array("list");
  json.number("", 1);
  json.open_object();
  json.close();
  json.close();
  json.boolean("yes", true);
  json.close();
  EXPECT_EQ(
      json.take(),
      "{\n  \"name\": \"a\\\"b\\\\c\\u000a\\u00ff\",\n  \"count\": 3,\n  \"ratio\": 0.5,\n  \"none\": null,\n"
      "  \"list\": [\n    1,\n    {}\n  ],\n  \"yes\": true\n}\n");
}

}  // namespace
}  // namespace twinloft::mailbench
