#include "twinloft/spool-repl/arbiter/value.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "sample_volume.h"

namespace twinloft::repl::arbiter {
namespace {

core::EpochValue sample() {
  return {{7, Uuid::parse("11111111-2222-4333-8444-555555555555").value()},
          2,
          set_of(1) | set_of(2) | set_of(64),
          Uuid::parse("aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee").value()};
}

// A later release must be able to read today's values. TWINLOFT_GOLDEN_WRITE=1 writes the file instead.
TEST(ArbiterValue, Golden) {
  std::string path = std::string(TWINLOFT_GOLDEN_DIR) + "/arbiter-value.json";
  if (std::getenv("TWINLOFT_GOLDEN_WRITE")) {
    std::ofstream(path) << encode_value(volume, sample()) << "\n";
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(encode_value(volume, sample()), text) << "the format has changed: it needs a new version";
  auto back = decode_value(volume, text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, sample());
}

TEST(ArbiterValue, RoundTrips) {
  SeededRandom random(3);
  for (int i = 0; i < 500; ++i) {
    core::EpochValue v{{1 + random.below(epoch_counter_max), Uuid::generate(random)},
                       static_cast<ReplicaId>(1 + random.below(64)),
                       random.draw(),
                       Uuid::generate(random),
                       random.below(2) == 0};
    v.in_sync |= set_of(v.writer);
    std::string text = encode_value(volume, v);
    EXPECT_LE(text.size(), value_bytes_max);
    auto back = decode_value(volume, text);
    ASSERT_TRUE(back) << back.error().message << " " << text;
    EXPECT_EQ(*back, v);
  }
}

TEST(ArbiterValue, LongestFits) {
  core::EpochValue v = sample();
  v.epoch.counter = epoch_counter_max;
  v.in_sync = UINT64_MAX;
  v.by_force = true;
  EXPECT_LE(encode_value(volume, v).size(), value_bytes_max);
  EXPECT_TRUE(decode_value(volume, encode_value(volume, v)));
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = encode_value(volume, sample());
  std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ArbiterValue, RefusesInWords) {
  struct Case {
    std::string text;
    const char* words;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"", "not JSON"},
           {"null", "not a JSON object"},
           {"[]", "not a JSON object"},
           {"{}", "no \"format\""},
           {changed("twinloft-epoch", "twinloft"), "no \"format\""},
           {changed("\"version\":1", "\"version\":2"),
            "in version 2 of its format, this program knows version 1"},
           {changed("\"version\":1", "\"version\":\"1\""), "\"version\" is not a number"},
           {changed("\"version\":1,", ""), "\"version\" is not a number"},
           {changed("\"version\":1", "\"version\":-1"), "\"version\" is not a number"},
           {changed("0f1e2d3c", "0f1e2d3d"), "is of volume 0f1e2d3d-"},
           {changed("0f1e2d3c", "0f1e2d3"), "\"volume\" is no UUID"},
           {changed("\"counter\":7", "\"counter\":0"), "\"counter\" is not a number"},
           {changed("\"counter\":7", "\"counter\":7.5"), "\"counter\" is not a number"},
           {changed("\"counter\":7", "\"counter\":4611686018427387905"), "\"counter\" is not a number"},
           {changed("\"counter\":7", "\"counter\":18446744073709551616"), "\"counter\" is not a number"},
           {changed("\"epoch\":{", "\"epoch\":[{"), "not JSON"},
           {changed("11111111-2222-4333-8444-555555555555", "00000000-0000-0000-0000-000000000000"),
            "\"id\" is no UUID"},
           {changed("\"writer\":2", "\"writer\":65"), "\"writer\" is not a number from 1 to 64"},
           {changed("\"writer\":2", "\"writer\":3"), "its writer is not in sync"},
           {changed("[1,2,64]", "[1,2,65]"), "not a replica from 1 to 64"},
           {changed("[1,2,64]", "[0,2]"), "not a replica"},
           {changed("[1,2,64]", "7"), "no list \"in_sync\""},
           {changed("[1,2,64]", "[2,1,64]"), "in the exact form"},
           {changed("[1,2,64]", "[1,2,2,64]"), "in the exact form"},
           {changed("\"writer\":2", "\"writer\": 2"), "in the exact form"},
           {changed("\"writer\":2", "\"writer\":2,\"writer\":2"), "in the exact form"},
           {changed("\"writer\":2", "\"writer\":2,\"more\":1"), "in the exact form"},
           {changed("eeeeeeeeeeee\"", "eeeeeeeeeeee\",\"by_force\":1"), "neither true nor false"},
           {changed("eeeeeeeeeeee\"", "eeeeeeeeeeee\",\"by_force\":false"), "in the exact form"},
           {changed("aaaaaaaa", "AAAAAAAA"), "in the exact form"},
           {encode_value(volume, sample()) + "\n", "in the exact form"},
           {encode_value(volume, sample()) + "{}", "not JSON"},
           {std::string(value_bytes_max + 1, ' '), "1025 bytes"},
           {std::string(512, '['), "not JSON"},
           {std::string("{\"format\":\"twinloft-epoch\\u0000\"}"), "no \"format\""},
       }) {
    auto got = decode_value(volume, c.text);
    ASSERT_FALSE(got) << c.text;
    EXPECT_NE(got.error().message.find(c.words), std::string::npos) << c.text << "\n" << got.error().message;
  }
}

TEST(ArbiterValue, EveryChangedByteIsAnotherValueOrNone) {
  std::string good = encode_value(volume, sample());
  for (std::size_t i = 0; i < good.size(); ++i)
    for (char c : {'0', '9', 'a', '"', ' ', '\0', '\xff'}) {
      std::string text = good;
      if (text[i] == c) continue;
      text[i] = c;
      auto got = decode_value(volume, text);
      EXPECT_TRUE(!got || encode_value(volume, *got) == text);
      EXPECT_TRUE(!got || *got != sample());
    }
}

}  // namespace
}  // namespace twinloft::repl::arbiter
