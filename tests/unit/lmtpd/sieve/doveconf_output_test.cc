// The tree of doveconf's output. The texts are lines that Dovecot 2.3.19 and 2.4.1 have printed.
#include "twinloft/lmtpd/sieve/doveconf_output.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

constexpr const char* of_2_3 = R"(# 2.3.19.1 (9b53102964): /etc/dovecot/dovecot.conf
# Pigeonhole version 0.5.19 (4eae2f79)
auth_username_format = %Lu
mail_plugins = " quota sieve"
namespace inbox {
  inbox = yes
  mailbox Trash {
    special_use = \Trash
  }
  prefix = 
}
plugin {
  sieve = file:~/sieve;active=~/.dovecot.sieve
  sieve_before = 
}
service lmtp {
  process_limit = 20
}
ssl_key = # hidden, use -P to show it
)";

TEST(SieveDoveconf, ReadsSectionsAndValuesOf23) {
  auto out = parse_doveconf(of_2_3);
  ASSERT_TRUE(out.has_value()) << out.error().message;
  EXPECT_EQ(out->major * 100 + out->minor, 203);
  EXPECT_FALSE(out->is_2_4());
  EXPECT_EQ(out->root.value("auth_username_format"), "%Lu");
  EXPECT_TRUE(out->root.lists("mail_plugins", "sieve"));
  EXPECT_TRUE(out->root.lists("mail_plugins", "quota"));
  EXPECT_FALSE(out->root.lists("mail_plugins", "siev"));
  const DoveconfSection* plugin = out->root.find("plugin", "");
  ASSERT_NE(plugin, nullptr);
  EXPECT_EQ(plugin->value("sieve"), "file:~/sieve;active=~/.dovecot.sieve");
  EXPECT_TRUE(plugin->has("sieve_before"));
  EXPECT_EQ(plugin->value("sieve_before"), "");
  EXPECT_FALSE(plugin->has("sieve_after"));
  ASSERT_NE(out->root.find("namespace", "inbox"), nullptr);
  EXPECT_NE(out->root.find("namespace", "inbox")->find("mailbox", "Trash"), nullptr);
  ASSERT_NE(out->root.find("service", "lmtp"), nullptr);
  EXPECT_EQ(out->root.find("service", "lmtp")->value("process_limit"), "20");
  EXPECT_EQ(out->root.find("service", "lda"), nullptr);
}

TEST(SieveDoveconf, ReadsListsAndNamesInQuotesOf24) {
  auto out = parse_doveconf(R"(# 2.4.1-4 (7d8c0e5759): /etc/dovecot/dovecot.conf
mail_plugins {
  quota = yes
  sieve = yes
  acl = no
}
quota "User quota" {
  driver = count
}
userdb sql {
  query = SELECT '{' AS x, home FROM users WHERE a = b {
}
)");
  ASSERT_TRUE(out.has_value()) << out.error().message;
  EXPECT_TRUE(out->is_2_4());
  EXPECT_TRUE(out->root.lists("mail_plugins", "sieve"));
  EXPECT_FALSE(out->root.lists("mail_plugins", "acl"));
  EXPECT_NE(out->root.find("quota", "User quota"), nullptr);
  ASSERT_NE(out->root.find("userdb", "sql"), nullptr);
  EXPECT_EQ(out->root.find("userdb", "sql")->value("query"),
            "SELECT '{' AS x, home FROM users WHERE a = b {");
}

TEST(SieveDoveconf, RefusesWhatIsNoOutputOfDoveconf) {
  for (const char* text : {"", "plugin {\n}\n", "# 2.3.1\nplugin {\n", "# 2.3.1\n}\n", "# no version\n"})
    EXPECT_FALSE(parse_doveconf(text).has_value()) << text;
  std::string deep = "# 2.4.1\n";
  for (int i = 0; i < 40; ++i) deep += "a {\n";
  EXPECT_FALSE(parse_doveconf(deep).has_value());
}

}  // namespace
}  // namespace twinloft::lmtpd
