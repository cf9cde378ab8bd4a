#include "twinloft/mail/maildir_name.h"

#include <gtest/gtest.h>

namespace twinloft::mail {
namespace {

TEST(MaildirNames, HoldNoSeparatorOfMaildir) {
  EXPECT_EQ(clean_host("a/b:c,d e"), "a\\057b\\072c\\054d\\040e");
  EXPECT_EQ(clean_host(""), "localhost");
  MaildirNames names("mail.example.org", 42);
  EXPECT_EQ(names.next({100, 7}), "100.M7P42Q0.mail.example.org");
  EXPECT_EQ(names.next({100, 7}), "100.M7P42Q1.mail.example.org");
  EXPECT_EQ(with_sizes("x", 12, 14), "x,S=12,W=14");
}

TEST(MaildirFlags, FollowTheNameThatAFileKeeps) {
  EXPECT_EQ(base_name("1.M2P3.host,S=7,W=8:2,FS"), "1.M2P3.host,S=7,W=8");
  EXPECT_EQ(base_name("1.M2P3.host"), "1.M2P3.host");
  EXPECT_EQ(base_name("1.host:2,"), "1.host");
  EXPECT_EQ(base_name("1.host:1,x"), "1.host:1,x") << "experimental semantics: no known flags";
}

TEST(MaildirFlags, AreTheStandardOnesInOrderAndOnce) {
  EXPECT_EQ(standard_flags("1.host:2,SFRSTDP"), "DFPRST");
  EXPECT_EQ(standard_flags("1.host:2,SaXb"), "S") << "keywords and unknown letters are omitted";
  EXPECT_EQ(standard_flags("1.host:2,"), "");
  EXPECT_EQ(standard_flags("1.host"), "");
  EXPECT_EQ(with_flags("1.host,S=7", "FS"), "1.host,S=7:2,FS");
}

}  // namespace
}  // namespace twinloft::mail
