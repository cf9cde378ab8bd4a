// The text of the file maildirsize: lmtpd reads what Dovecot writes, Dovecot reads what lmtpd writes, and
// damage is detected.
#include "maildirsize.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

TEST(Maildirsize, SumsItsLines) {
  auto file = parse_maildirsize("1000000S,200C\n734502 113\n2310 1\n-5000 -2\n");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->limit, (QuotaLimit{1000000, 200}));
  EXPECT_EQ(file->used, (QuotaUsage{731812, 112}));
  EXPECT_EQ(file->lines, 3u);
}

TEST(Maildirsize, ReadsWhatItWrites) {
  for (QuotaLimit limit : {QuotaLimit{5, 6}, QuotaLimit{0, 6}, QuotaLimit{5, 0}, QuotaLimit{}}) {
    auto file = parse_maildirsize(format_maildirsize(limit, {7, 8}) + format_change({-1, -1}));
    ASSERT_TRUE(file);
    EXPECT_EQ(file->limit, limit);
    EXPECT_EQ(file->used, (QuotaUsage{6, 7}));
  }
}

// The forms of Dovecot 2.3: "0S" without a limit, and bytes before messages with both limits.
TEST(Maildirsize, IsWrittenAsDovecotWritesIt) {
  EXPECT_EQ(format_maildirsize({}, {1, 2}), "0S\n1 2\n");
  EXPECT_EQ(format_maildirsize({10, 0}, {1, 2}), "10S\n1 2\n");
  EXPECT_EQ(format_maildirsize({0, 3}, {1, 2}), "3C\n1 2\n");
  EXPECT_EQ(format_maildirsize({10, 3}, {1, 2}), "10S,3C\n1 2\n");
}

TEST(Maildirsize, ALineThatSomebodyIsWritingIsNotThereYet) {
  auto file = parse_maildirsize("10S\n1 1\n20 1");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->used, (QuotaUsage{1, 1}));
  EXPECT_FALSE(parse_maildirsize("10S\n1 1").has_value()) << "only the limits";
}

TEST(Maildirsize, OtherProgramsPadTheirLines) {
  auto file = parse_maildirsize("10S,3C\n      12        1\r\n");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->used, (QuotaUsage{12, 1}));
}

TEST(Maildirsize, DamageIsSeen) {
  using namespace std::string_view_literals;
  for (std::string_view text :
       {""sv, "\n"sv, "10S"sv, "10S\n"sv, "10S\n1\n"sv, "10S\n1 x\n"sv, "10S\nx 1\n"sv, "10S\n1 1 1\n"sv,
        "10S\n\n1 1\n"sv, "10S\n1 1\0\n"sv, "10S\n1 1\n\0\0\0\n"sv, "10S\n-1 1\n"sv, "10S\n1 -1\n"sv,
        "10S\n99999999999999999999 1\n"sv, "10S\n1.5 1\n"sv, "10S\n9223372036854775807 1\n"sv})
    EXPECT_FALSE(parse_maildirsize(text).has_value()) << text;
}

TEST(Maildirsize, LimitsThatCannotBeReadAreNone) {
  EXPECT_EQ(parse_maildirsize("lots\n1 1\n")->limit, QuotaLimit{});
  EXPECT_EQ(parse_maildirsize("10X,5C\n1 1\n")->limit, (QuotaLimit{0, 5}));
}

TEST(Maildirsize, IsOutdatedForOtherLimitsAndWhenItSaysOver) {
  MaildirSize file{{100, 0}, {50, 5}, 1};
  EXPECT_FALSE(is_outdated(file, {100, 0}, 1'000'000));
  EXPECT_TRUE(is_outdated(file, {101, 0}, 0));
  EXPECT_TRUE(is_outdated(file, {100, 9}, 0));
  file.used.bytes = 100;
  EXPECT_FALSE(is_outdated(file, {100, 0}, 1'000'000)) << "full, but not over the limit";
  file.used.bytes = 101;
  EXPECT_FALSE(is_outdated(file, {100, 0}, 900));
  EXPECT_TRUE(is_outdated(file, {100, 0}, 901));
  file.lines = 2;
  EXPECT_TRUE(is_outdated(file, {100, 0}, 0));
  EXPECT_TRUE(is_outdated({{0, 4}, {50, 5}, 2}, {0, 4}, 0));
}

TEST(Maildirsize, SizesComeFromNames) {
  EXPECT_EQ(size_in_name("1.M2P3.host,S=1234,W=1250:2,S"), 1234u);
  EXPECT_EQ(size_in_name("1.M2P3.host,S=7"), 7u);
  EXPECT_EQ(size_in_name("1.M2P3.host,S=7:2,"), 7u);
  for (const char* name :
       {"1.M2P3.host:2,S", "1,S=", "1,S=x", "1,S=5x", "1,S=99999999999999999999", "1,S=-5"})
    EXPECT_FALSE(size_in_name(name)) << name;
}

// Dovecot's rule: below the limit, one more message fits, up to the limit and the grace.
TEST(QuotaRoom, IsWhatDovecotGives) {
  QuotaLimit limit{1000, 0};
  EXPECT_EQ(room_for(100, {900, 9}, limit, 0), Room::enough);
  EXPECT_EQ(room_for(101, {900, 9}, limit, 0), Room::full);
  EXPECT_EQ(room_for(200, {900, 9}, limit, 10), Room::enough);
  EXPECT_EQ(room_for(201, {900, 9}, limit, 10), Room::full);
  EXPECT_EQ(room_for(1, {1000, 9}, limit, 10), Room::full) << "a full mailbox has no grace";
  EXPECT_EQ(room_for(1, {999, 9}, limit, 0), Room::enough);
  EXPECT_EQ(room_for(1001, {0, 0}, limit, 0), Room::never);
  EXPECT_EQ(room_for(1100, {0, 0}, limit, 10), Room::enough);
  EXPECT_EQ(room_for(1101, {0, 0}, limit, 10), Room::never);
  EXPECT_EQ(room_for(1, {5000, 9}, {0, 10}, 10), Room::enough);
  EXPECT_EQ(room_for(1, {5000, 10}, {0, 10}, 10), Room::full);
  EXPECT_EQ(room_for(~0ull, {5000, 10}, {}, 10), Room::enough);
}

TEST(QuotaRoom, LargeNumbersDoNotWrap) {
  QuotaLimit most{std::uint64_t{1} << 62, 0};
  EXPECT_EQ(room_for(1, {1, 1}, most, 100), Room::enough);
  EXPECT_EQ(room_for(~0ull, {1, 1}, most, 100), Room::never);
  EXPECT_EQ(room_for(1, {1, 1}, {~0ull, 0}, 100), Room::enough);
}

}  // namespace
}  // namespace twinloft::lmtpd
