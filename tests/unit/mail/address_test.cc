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

}  // namespace
}  // namespace twinloft::mail
