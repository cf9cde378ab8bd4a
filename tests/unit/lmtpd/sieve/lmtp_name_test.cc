// Dovecot's LMTP must never deliver to another user than lmtpd has found.
#include "twinloft/lmtpd/sieve/lmtp_name.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

TEST(SieveLmtpName, ANameThatDovecotSplitsIsRefused) {
  struct Row {
    const char *user, *delimiters;
    bool fits;
  };
  const Row rows[] = {{"ann@example.org", "+-", true},
                      {"ann-marie@example.org", "+", true},
                      {"ann-marie@example.org", "+-", false},
                      {"ann-marie@example.org", "-", false},
                      {"ann+lists@example.org", "+", false},
                      {"ann@my-site.example", "+-", true},
                      {"ann+lists", "+", false},
                      {"+@example.org", "+", false},
                      {"a+b@c@example.org", "+", false},
                      {"ann+lists@example.org", "", true}};
  for (const Row& row : rows)
    EXPECT_EQ(check_lmtp_name(row.user, row.delimiters).has_value(), row.fits)
        << row.user << " " << row.delimiters;
  EXPECT_NE(check_lmtp_name("ann-marie@example.org", "+-").error().message.find("\"ann\" in place of"),
            std::string::npos);
}

TEST(SieveLmtpName, TheDetailFollowsADelimiterOfDovecot) {
  EXPECT_EQ(lmtp_delimiter("+", "+"), "+");
  EXPECT_EQ(lmtp_delimiter("+", "-+"), "+");
  EXPECT_EQ(lmtp_delimiter("+", "-_"), "-");
  EXPECT_EQ(lmtp_delimiter("+", ""), "") << "Dovecot would look for a user with this name";
  EXPECT_EQ(lmtp_delimiter("", "+"), "+");
}

}  // namespace
}  // namespace twinloft::lmtpd
