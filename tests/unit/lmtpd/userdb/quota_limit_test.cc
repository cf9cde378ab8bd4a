// Quotas in rows, in Dovecot's syntax and in lmtpd's.
#include "twinloft/lmtpd/userdb/quota_limit.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

TEST(QuotaBytes, HaveUnits) {
  EXPECT_EQ(parse_quota_bytes("0"), 0u);
  EXPECT_EQ(parse_quota_bytes("1000"), 1000u);
  EXPECT_EQ(parse_quota_bytes("7b"), 7u);
  EXPECT_EQ(parse_quota_bytes("2k"), 2048u);
  EXPECT_EQ(parse_quota_bytes("3M"), std::uint64_t{3} << 20);
  EXPECT_EQ(parse_quota_bytes("4G"), std::uint64_t{4} << 30);
  EXPECT_EQ(parse_quota_bytes("5T"), std::uint64_t{5} << 40);
  EXPECT_EQ(parse_quota_bytes("5", 1024), 5120u);
  EXPECT_EQ(parse_quota_bytes("5B", 1024), 5u);
}

TEST(QuotaBytes, WhatIsNoSizeIsAnError) {
  for (const char* text : {"", "G", "-1", "+1", "1 G", "1GB", "10%", "1.5G", "9223372036854775808",
                           "8388608T", "99999999999999999999"})
    EXPECT_FALSE(parse_quota_bytes(text)) << text;
  EXPECT_TRUE(parse_quota_bytes("9223372036854775807"));
}

TEST(QuotaRule, IsDovecots) {
  EXPECT_EQ(parse_quota_rule("*:storage=1G"), (QuotaLimit{std::uint64_t{1} << 30, 0}));
  EXPECT_EQ(parse_quota_rule("*:storage=100"), (QuotaLimit{102'400, 0})) << "KiB";
  EXPECT_EQ(parse_quota_rule("*:bytes=100:messages=5"), (QuotaLimit{100, 5}));
  EXPECT_EQ(parse_quota_rule("*:messages=5:storage=1M"), (QuotaLimit{1u << 20, 5}));
  EXPECT_EQ(parse_quota_rule("*:storage=0"), QuotaLimit{});
}

TEST(QuotaRule, OthersAreErrors) {
  for (const char* text : {"", "*", "*:", "storage=1G", "Trash:storage=+10M", "*:storage=+10%",
                           "*:storage=10%", "*:ignore", "*:messages=1k", "*:size=5", "*:storage=1G:"})
    EXPECT_FALSE(parse_quota_rule(text)) << text;
}

}  // namespace
}  // namespace twinloft::lmtpd
