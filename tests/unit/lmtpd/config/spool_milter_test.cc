// The section [spool_milter], as spool-milter and lmtpd read it.
#include <gtest/gtest.h>

#include <string>

#include "minimal.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {
namespace {

using namespace std::chrono_literals;

Result<Config> with_milter(const std::string& keys) {
  return parse_config("t.toml",
                      "[[listen]]\naddress = \"unix:/run/lmtp\"\n[[listen]]\naddress = \"0.0.0.0:2400\"\n" +
                          std::string(test::users_and_spool) + "[spool_milter]\n" + keys);
}

TEST(SpoolMilterSection, AllKeysAreRead) {
  auto config = with_milter(R"(address = "unix:/run/milter"
mode = "0620"
group = "postfix"
domains = ["Example.ORG", "b\u00fccher.example"]
rcpt_mailer = ["lmtp", "lmtpd"]
rcpt_host = ["unix:private/twinloft"]
unknown = "continue"
timeout = "3s"
connections = 7
)");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_TRUE(config->spool_milter);
  const SpoolMilterSettings& milter = *config->spool_milter;
  EXPECT_EQ(milter.listen.unix_path, "/run/milter");
  EXPECT_EQ(milter.listen.mode, 0620u);
  EXPECT_EQ(milter.listen.group, "postfix");
  EXPECT_EQ(milter.domains, (std::vector<std::string>{"example.org", "xn--bcher-kva.example"}));
  EXPECT_EQ(milter.rcpt_mailer, (std::vector<std::string>{"lmtp", "lmtpd"}));
  EXPECT_EQ(milter.rcpt_host, (std::vector<std::string>{"unix:private/twinloft"}));
  EXPECT_FALSE(milter.refuses_unknown);
  EXPECT_EQ(milter.timeout, 3s);
  EXPECT_EQ(milter.connections_max, 7u);
}

TEST(SpoolMilterSection, TheDefaultsAreThoseOfTheDocuments) {
  auto config = with_milter("address = \"127.0.0.1:8890\"\ndomains = [\"example.org\"]\n");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->spool_milter->refuses_unknown);
  EXPECT_EQ(config->spool_milter->timeout, 8s);
  EXPECT_EQ(config->spool_milter->connections_max, 1000u);
  EXPECT_EQ(config->spool_milter->listen.mode, 0660u);
}

TEST(SpoolMilterSection, WithoutItThereIsNoMilter) {
  auto config = parse_config(
      "t.toml",
      "[[listen]]\naddress = \"unix:/a\"\n[users]\ndriver = \"static\"\naccept_all = true\n"
      "home = \"/srv/%user%\"\n[spool]\npath = \"/srv\"\nrequire_marker = false\n");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_FALSE(config->spool_milter);
}

TEST(SpoolMilterSection, WhatIsWrongIsToldWithItsPlace) {
  const std::pair<const char*, const char*> rows[] = {
      {"domains = [\"example.org\"]\n", "spool_milter.address: is missing"},
      {"address = \"unix:/m\"\n", "spool_milter.domains: is missing, and so are rcpt_mailer and rcpt_host"},
      {"address = \"unix:/m\"\ndomains = []\n", "spool_milter.domains: is an empty list"},
      {"address = \"unix:/m\"\ndomains = [\"a b\"]\n", "spool_milter.domains: \"a b\": expected a domain"},
      {"address = \"unix:/m\"\nrcpt_mailer = []\n",
       "spool_milter.rcpt_mailer: expected the values that the MTA gives for {rcpt_mailer}"},
      {"address = \"unix:/m\"\nrcpt_host = [\"\"]\n",
       "spool_milter.rcpt_host: expected the values that the MTA gives for {rcpt_host}"},
      {"address = \"unix:/m\"\ndomains = [\"a.example\"]\nunknown = \"rejct\"\n", "did you mean \"reject\"?"},
      {"address = \"unix:/m\"\ndomains = [\"a.example\"]\nover = \"defer\"\n",
       "spool_milter.over: unknown key"},
      {"address = \"unix:/run//lmtp\"\ndomains = [\"a.example\"]\n",
       "spool_milter.address: is the address of a [[listen]] too, where lmtpd speaks LMTP"},
      {"address = \"127.0.0.1:2400\"\ndomains = [\"a.example\"]\n",
       "0.0.0.0:2400 and 127.0.0.1:2400 cannot both be used"},
      {"address = \"127.0.0.1:8890\"\nmode = \"0600\"\ndomains = [\"a.example\"]\n",
       "spool_milter.mode: is for Unix sockets only"},
      {"address = \"unix:/m\"\ndomains = [\"a.example\"]\ntimeout = \"0s\"\n",
       "spool_milter.timeout: must be above 0"},
  };
  for (auto [keys, message] : rows) {
    auto config = with_milter(keys);
    ASSERT_FALSE(config) << keys;
    EXPECT_NE(config.error().message.find(message), std::string::npos) << config.error().message;
    EXPECT_EQ(config.error().message.find("t.toml:"), 0u) << config.error().message;
  }
}

}  // namespace
}  // namespace twinloft::lmtpd
