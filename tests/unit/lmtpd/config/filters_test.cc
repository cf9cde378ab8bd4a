// The sections [filters] and [filter.NAME].
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "minimal.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {
namespace {

using namespace std::chrono_literals;

Result<Config> with_filters(const std::string& sections) {
  return parse_config("t.toml", fmt::format("[[listen]]\naddress = \"unix:/run/lmtp\"\n{}{}",
                                            test::users_and_spool, sections));
}
std::string refused(const std::string& sections) {
  auto config = with_filters(sections);
  return config ? "no error" : config.error().message;
}
std::string warnings(const std::string& sections) {
  auto config = with_filters(sections);
  return config ? fmt::format("{}", fmt::join(config->warnings, "\n")) : config.error().message;
}
bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(FilterSections, AllKeysAreRead) {
  auto config = with_filters(R"([filters]
order = ["two", "one"]
quarantine = "quarantine@example.org"
threads = 3
[filter.one]
address = "unix:/run/one.sock"
[filter.two]
address = "b\u00fccher.example:11332"
on_failure = "quarantine"
connect_timeout = "1s"
command_timeout = "2s"
message_timeout = "3s"
message_limit = "4s"
)");
  ASSERT_TRUE(config) << config.error().message;
  const FiltersSettings& filters = config->filters;
  EXPECT_EQ(filters.quarantine, "quarantine@example.org");
  EXPECT_EQ(filters.threads, 3u);
  ASSERT_EQ(filters.order.size(), 2u);
  const FilterSettings& two = filters.order[0];
  EXPECT_EQ(two.spec.name, "two");
  EXPECT_EQ(two.target.text, "xn--bcher-kva.example:11332");
  EXPECT_EQ(two.spec.on_failure, milter::DefaultAction::quarantine);
  EXPECT_EQ(two.target.timeout, 1s);
  EXPECT_EQ(two.spec.command_timeout, 2s);
  EXPECT_EQ(two.spec.message_timeout, 3s);
  EXPECT_EQ(two.spec.message_most, 4s);
  EXPECT_EQ(filters.order[1].spec.name, "one");
}

TEST(FilterSections, TheDefaultsAreThoseOfTheDocuments) {
  auto config = with_filters("[filters]\norder = [\"one\"]\n[filter.one]\naddress = \"127.0.0.1:8891\"\n");
  ASSERT_TRUE(config) << config.error().message;
  const FilterSettings& one = config->filters.order.at(0);
  EXPECT_EQ(config->filters.threads, 32u);
  EXPECT_EQ(one.spec.on_failure, milter::DefaultAction::tempfail);
  EXPECT_EQ(one.target.timeout, 10s);
  EXPECT_EQ(one.spec.command_timeout, 20s);
  EXPECT_EQ(one.spec.message_timeout, 120s);
  EXPECT_EQ(one.spec.message_most, 120s);
  EXPECT_TRUE(config->warnings.empty()) << fmt::format("{}", fmt::join(config->warnings, "\n"));
}

TEST(FilterSections, WhatIsWrongIsNamed) {
  const std::string one = "[filter.one]\naddress = \"127.0.0.1:8891\"\n";
  EXPECT_TRUE(says(refused(one), "add [filters] with order = [\"one\"]"));
  EXPECT_TRUE(says(refused("[filters]\norder = [\"none\"]\n"), "there is no section [filter.none]"));
  EXPECT_TRUE(says(refused("[filters]\norder = [\"one\", \"one\"]\n" + one), "names one twice"));
  EXPECT_TRUE(says(refused("[filters]\norder = [\"one\"]\n[filter.one]\n"), "address"));
  EXPECT_TRUE(says(refused("[filters]\norder = [\"one\"]\n[filter.one]\naddress = \"8891\"\n"), "\"8891\""));
  EXPECT_TRUE(says(refused("[filters]\norder = [\"one\"]\n[filter]\none = 1\n"), "expected a section"));
  EXPECT_TRUE(says(refused("[filters]\norder = [\"one\"]\nthreads = 0\n" + one), "threads"));
  EXPECT_TRUE(
      says(refused("[filters]\norder = [\"one\"]\nquarantine = \"no address\"\n" + one), "quarantine"));
  EXPECT_TRUE(
      says(refused("[filters]\norder = [\"one\"]\n" + one + "on_failure = \"panic\"\n"), "\"panic\""));
  EXPECT_TRUE(says(refused("[filters]\norder = [\"one\"]\n" + one + "on_failure = \"quarantine\"\n"),
                   "filter.one.on_failure needs the address of a mailbox"));
  EXPECT_TRUE(says(refused("[filters]\norder = [\"one\"]\n" + one + "timeout = \"1s\"\n"), "timeout"));
}

TEST(FilterSections, AnUnusedFilterIsNamed) {
  EXPECT_TRUE(says(warnings("[filters]\norder = []\n[filter.one]\naddress = \"127.0.0.1:8891\"\n"),
                   "does not name one"));
}

// An MTA waits 5 minutes at MAIL and RCPT, and 10 minutes behind the message.
TEST(FilterSections, TheSumOfAllLimitsIsCompared) {
  auto sections = [](int count, const std::string& keys) {
    std::string order, filters;
    for (int i = 0; i < count; ++i) {
      order += fmt::format("{}\"f{}\"", i == 0 ? "" : ", ", i);
      filters += fmt::format("[filter.f{}]\naddress = \"127.0.0.1:8891\"\n{}", i, keys);
    }
    return fmt::format("[filters]\norder = [{}]\n{}", order, filters);
  };
  EXPECT_EQ(warnings(sections(1, "")), "");
  EXPECT_EQ(warnings(sections(2, "")), "");
  EXPECT_TRUE(says(warnings(sections(4, "")), "filters and a delivery may take 600s"));
  EXPECT_TRUE(
      says(warnings(sections(1, "") + "[agent.a]\ncommand = \"/bin/true %to%\"\ntimeout = \"360s\"\n"),
           "and the filters' message_limit a delivery may take 605s"));
  EXPECT_EQ(warnings(sections(2, "message_timeout = \"200s\"\nmessage_limit = \"200s\"\n")), "");
  const std::string
      slow = "command_timeout = \"160s\"\nmessage_timeout = \"260s\"\nmessage_limit = \"260s\"\n";
  EXPECT_TRUE(says(warnings(sections(2, slow)), "1360s at MAIL, and an MTA waits 5min"));
  EXPECT_TRUE(says(warnings(sections(2, slow)), "410s at RCPT, and an MTA waits 5min"));
  EXPECT_TRUE(says(warnings(sections(1, "message_timeout = \"301s\"\n")), "is never reached"));
}

}  // namespace
}  // namespace twinloft::lmtpd
