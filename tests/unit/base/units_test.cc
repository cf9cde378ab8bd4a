#include "twinloft/base/units.h"

#include <gtest/gtest.h>

#include "twinloft/base/suggest.h"

namespace twinloft {
namespace {

using namespace std::chrono_literals;

std::int64_t size(std::string_view text) {
  auto parsed = parse_size(text);
  return parsed ? static_cast<std::int64_t>(*parsed) : -1;
}

Duration duration(std::string_view text, BareNumber bare = BareNumber::refused) {
  return parse_duration(text, bare).value_or(Duration(-1));
}

TEST(Units, SizesHaveTheUnitsThatAnyProgramHas) {
  EXPECT_EQ(size("0"), 0);
  EXPECT_EQ(size("4096"), 4096);
  EXPECT_EQ(size("4096B"), 4096);
  for (const char* kib : {"64KiB", "64K", "64k", "64kib"}) EXPECT_EQ(size(kib), 65536) << kib;
  for (const char* kb : {"64kB", "64KB", "64kb"}) EXPECT_EQ(size(kb), 64000) << kb;
  EXPECT_EQ(size("64MiB"), 64 << 20);
  EXPECT_EQ(size("64M"), 64 << 20);
  EXPECT_EQ(size("64MB"), 64'000'000);
  EXPECT_EQ(size("1GB"), 1'000'000'000);
  EXPECT_EQ(size("2G"), 2ll << 30);
  EXPECT_EQ(size("2GiB"), 2ll << 30);
  EXPECT_EQ(size("3T"), 3ll << 40);
  EXPECT_EQ(size("3TB"), 3'000'000'000'000);
  EXPECT_EQ(size("4194304TiB"), 1ll << 62);
}

TEST(Units, SizesMayHaveAFraction) {
  EXPECT_EQ(size("1.5MiB"), 3 << 19);
  EXPECT_EQ(size("0.5K"), 512);
  EXPECT_EQ(size("1.001kB"), 1001);
}

TEST(Units, WhatIsNoSizeIsRefusedWithWhatToWrite) {
  for (const char* text :
       {"", "KiB", "-1", "+1", "1e3", "1.5", "1.", ".5K", "1..5K", "1.5.2K", "64 ", "64 KiB", " 64",
        "64Kib/s", "64X", "0x10", "4194305TiB", "99999999999999999999", "1.0000000000001G"})
    EXPECT_EQ(size(text), -1) << text;
  EXPECT_EQ(parse_size("64X").error().message,
            "\"64X\" is not a size: expected a number of bytes, or one such as 64KiB, 50MiB, 2G or 1GB");
}

TEST(Units, TimesHaveTheUnitsThatAnyProgramHas) {
  EXPECT_EQ(duration("5ns"), 5ns);
  EXPECT_EQ(duration("500us"), 500us);
  EXPECT_EQ(duration("250ms"), 250ms);
  EXPECT_EQ(duration("30s"), 30s);
  EXPECT_EQ(duration("1.5s"), 1500ms);
  EXPECT_EQ(duration("5min"), 5min);
  EXPECT_EQ(duration("5m"), 5min);
  EXPECT_EQ(duration("2h"), 2h);
  EXPECT_EQ(duration("1d"), 24h);
  EXPECT_EQ(duration("0"), 0s);
}

TEST(Units, ATimeWithoutUnitIsSecondsOnlyWhereItIsSaid) {
  EXPECT_EQ(duration("30"), Duration(-1));
  EXPECT_EQ(duration("30", BareNumber::seconds), 30s);
  EXPECT_EQ(duration("0.5", BareNumber::seconds), 500ms);
  for (const char* text : {"", "s", "-1s", "5x", "1e9s", "99999999999d", "."}) {
    EXPECT_EQ(duration(text), Duration(-1)) << text;
    EXPECT_EQ(duration(text, BareNumber::seconds), Duration(-1)) << text;
  }
}

TEST(Suggest, NamesTheNearestOrAll) {
  const std::string_view known[] = {"deliveries", "connections", "mode"};
  EXPECT_EQ(did_you_mean("delivery", known), "known here: deliveries, connections, mode");
  EXPECT_EQ(did_you_mean("deliverys", known), "did you mean \"deliveries\"?");
  EXPECT_EQ(did_you_mean("conections", known), "did you mean \"connections\"?");
  EXPECT_EQ(did_you_mean("x", known), "known here: deliveries, connections, mode");
  EXPECT_EQ(nearest_word("moed", known), "mode");
  EXPECT_EQ(nearest_word("conn", known), "connections") << "an abbreviation";
  constexpr std::string_view options[] = {"--duration", "--run", "--messages", "--message-id"};
  EXPECT_EQ(nearest_word("--dur", options), "--duration");
  EXPECT_EQ(nearest_word("--mess", options), std::nullopt) << "a prefix of two names";
  EXPECT_EQ(nearest_word("moed", {}), std::nullopt);
  EXPECT_EQ(nearest_word(std::string(100'000, 'x'), known), std::nullopt);
}

}  // namespace
}  // namespace twinloft
