#include "twinloft/mail/address.h"

#include <gtest/gtest.h>

namespace twinloft::mail {
namespace {

TEST(LocalPart, IsQuotedWhereItMustBe) {
  for (const char* plain : {"ann", "a.b+c/d", "!#$%&'*+-/=?^_`{|}~", "\xc3\xa4nn"})
    EXPECT_EQ(quote_local_part(plain), plain);
  EXPECT_EQ(quote_local_part("a b"), "\"a b\"");
  EXPECT_EQ(quote_local_part("a\"\\>"), "\"a\\\"\\\\>\"");
  for (const char* dots : {".a", "a.", "a..b", ""})
    EXPECT_EQ(quote_local_part(dots), std::string("\"") + dots + "\"");
}

TEST(Address, ANameThatAServerWouldCut) {
  EXPECT_EQ(misread_name("ann+lists@example.org", "+"), "ann");
  EXPECT_EQ(misread_name("ann-marie+x@example.org", "+-"), "ann");
  EXPECT_EQ(misread_name("+ann@example.org", "+"), "");
  EXPECT_EQ(misread_name("ann+lists", "+"), "ann");
  for (const char* whole : {"ann@example.org", "ann@my+host.example", "ann"})
    EXPECT_EQ(misread_name(whole, "+"), std::nullopt) << whole;
  EXPECT_EQ(misread_name("ann+lists@example.org", ""), std::nullopt);
}

}  // namespace
}  // namespace twinloft::mail
