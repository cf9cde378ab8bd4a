#include "twinloft/mailbench/options.h"

#include <gtest/gtest.h>

namespace twinloft::mailbench {
namespace {

using namespace std::chrono_literals;

TEST(Options, LoadTakesThemAll) {
  auto c = parse_load(
      {"--to",         "127.0.0.1:24", "-c",      "12",     "--duration", "30s",           "--warmup",
       "5s",           "--users",      "100",     "--size", "mean:70KiB", "--connections", "per-message",
       "--pipelining", "off",          "--retry", "3",      "--rate",     "50.5",          "--account",
       "a.txt",        "--json",       "-",       "--seed", "9",          "--run",         "x1"});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->load.server, "127.0.0.1:24");
  EXPECT_EQ(c->load.clients, 12u);
  EXPECT_EQ(c->load.schedule.duration, Duration(30s));
  EXPECT_EQ(c->load.schedule.warmup, Duration(5s));
  EXPECT_EQ(c->load.schedule.rate, 50.5);
  EXPECT_EQ(c->load.messages_per_connection, 1u);
  EXPECT_FALSE(c->load.pipelining);
  EXPECT_EQ(c->load.attempts, 4u);
  EXPECT_EQ(c->load.account, "a.txt");
  EXPECT_EQ(c->json, "-");
  EXPECT_EQ(c->load.run, "x1");
}

TEST(Options, TheAccountIsWrittenUnlessForbidden) {
  auto named_by_run = parse_load({"--server", "/s", "-n", "1", "--run", "abc"});
  ASSERT_TRUE(named_by_run);
  EXPECT_EQ(named_by_run->load.account, "mailbench-abc.account");
  auto none = parse_load({"--to", "/s", "-n", "1", "--no-account"});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->load.account, "");
}

TEST(Options, NoAbbreviationIsTakenAndTheNearestNameIsSaid) {
  for (const char* option : {"--acc", "--accoun"})
    EXPECT_FALSE(parse_load({"--to", "/s", "-n", "1", option, "x"})) << option;
  EXPECT_EQ(parse_load({"--to", "/s", "-n", "1", "--acount", "x"}).error().message,
            "there is no option --acount; did you mean \"--account\"?");
  EXPECT_EQ(parse_verify({"--qqqqqqqqqq", "x"}).error().message, "there is no option --qqqqqqqqqq");
}

TEST(Options, LoadRefusesWithTheReason) {
  struct Case {
    std::vector<std::string> arguments;
    const char* says;
  };
  const Case cases[] = {
      {{"-n", "1"}, "--to"},
      {{"--to", "/s", "--server", "/t", "-n", "1"}, "once"},
      {{"--to", "/s"}, "--duration"},
      {{"--to", "/s", "-n", "0"}, "--messages is 1"},
      {{"--to", "/s", "-n", "-1"}, "--messages"},
      {{"--to", "/s", "-n", "1", "--clients", "0"}, "--clients"},
      {{"--to", "/s", "-n", "1", "--size", "big"}, "size"},
      {{"--to", "/s", "-n", "1", "--rate", "0"}, "--rate"},
      {{"--to", "/s", "-n", "1", "--connections", "some"}, "per-message"},
      {{"--to", "/s", "-n", "1", "--pipelining", "on"}, "--pipelining"},
      {{"--to", "/s", "-n", "1", "--connections", "per-message", "--messages-per-connection", "2"},
       "exclude"},
      {{"--to", "/s", "-n", "1", "--account", "a", "--no-account"}, "exclude"},
      {{"--to", "/s", "-n", "1", "--run", "a-b"}, "--run"},
      {{"--to", "/s", "-n", "1", "--from", "a b"}, "blanks"},
      {{"--to", "/s", "-n", "1", "--warm", "1s"}, "warm"},
      {{"--to", "/s", "-n", "1", "stray"}, "positional"},
  };
  for (const Case& c : cases) {
    auto parsed = parse_load(c.arguments);
    ASSERT_FALSE(parsed) << c.says;
    EXPECT_NE(parsed.error().message.find(c.says), std::string::npos) << parsed.error().message;
  }
}

TEST(Options, Verify) {
  auto c = parse_verify(
      {"-a", "one", "-a", "two", "--spool", "/srv", "-m", "%d/%n/Maildir", "--strict-deferred"});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->verify.accounts, (std::vector<std::string>{"one", "two"}));
  EXPECT_TRUE(c->verify.strict_deferred);
  EXPECT_TRUE(c->verify.check_head);
  EXPECT_FALSE(parse_verify({"--spool", "/srv"}));
  EXPECT_FALSE(parse_verify({"-a", "one"}));
  EXPECT_FALSE(parse_verify({"-a", "one", "-s", "/srv", "-m", "%d/Maildir"}));
  EXPECT_FALSE(parse_verify({"-a", "one", "-s", "/srv", "-m", "%h/%u"}));
}

TEST(Options, ProtocolSecurityAndArrivals) {
  auto c = parse_load({"--to",   "h:25",   "-d",      "1s",    "--protocol", "smtp", "--starttls", "--tls-ca",
                       "/ca",    "--bdat", "--chunk", "64KiB", "--rate",     "100",  "--arrivals", "poisson",
                       "--ramp", "5s",     "--zipf",  "1.1",   "--hello",    "me"});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->load.protocol, Protocol::smtp);
  ASSERT_TRUE(c->load.starttls);
  EXPECT_EQ(c->load.starttls->authority, "/ca");
  EXPECT_EQ(c->load.chunk, 65536u);
  EXPECT_EQ(c->load.schedule.arrivals, Arrivals::Kind::poisson);
  EXPECT_EQ(c->load.schedule.ramp, std::chrono::seconds(5));
  EXPECT_EQ(c->load.zipf, 1.1);
  EXPECT_EQ(c->load.hello, "me");
  EXPECT_EQ(parse_load({"--to", "/s", "-n", "1", "--lhlo", "old"})->load.hello, "old");
}

TEST(Options, ASearchHasAPromiseAndTrials) {
  auto c = parse_load({"--to", "/s", "-d", "10s", "--search", "p99<50ms", "--search-precision", "5"});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->search->text(), "p99<50ms");
  EXPECT_EQ(c->search_precision, 0.05);
  EXPECT_FALSE(parse_load({"--to", "/s", "-n", "10", "--search", "p99<50ms"}));
}

// What contradicts itself, or has no effect, is an error.
TEST(Options, Contradictions) {
  const std::vector<std::vector<std::string>> cases = {
      {"--arrivals", "poisson"},
      {"--arrivals", "sometimes", "--rate", "1"},
      {"--protocol", "uucp"},
      {"--tls-ca", "/ca"},
      {"--starttls", "--tls-name", "x"},
      {"--starttls", "--tls-ca", "/ca"},  // the name of a Unix socket
      {"--chunk", "64KiB"},
      {"--bdat", "--chunk", "10"},
      {"--zipf", "-1"},
      {"--messages-from", "/d", "--size", "4KiB"},
      {"--search", "quick"},
      {"--search", "p99<1s", "--messages", "5"},
  };
  for (const auto& more : cases) {
    std::vector<std::string> arguments = {"--to", "/s", "-d", "1s"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_FALSE(parse_load(arguments)) << more[0] << " " << more.back();
  }
  EXPECT_FALSE(parse_calibrate({"-d", "1s", "--starttls"}));
  EXPECT_TRUE(parse_calibrate({"-d", "1s", "--transport", "tcp"})->tcp);
}

TEST(Options, Plots) {
  auto c = parse_plot({"--kind", "ticks", "--mark", "1.5=killed", "--mark", "2=a=b", "-o", "x.svg",
                       "lmtpd=a.json", "b.json"});
  ASSERT_TRUE(c) << c.error().message;
  ASSERT_EQ(c->plot.marks.size(), 2u);
  EXPECT_EQ(c->plot.marks[1].second, "a=b");
  EXPECT_EQ(c->reports[0], (std::pair<std::string, std::string>{"lmtpd", "a.json"}));
  EXPECT_EQ(c->reports[1], (std::pair<std::string, std::string>{"", "b.json"}));
  for (std::vector<std::string> bad : {std::vector<std::string>{"--kind", "ticks", "--mark", "x=1", "a"},
                                       {"--kind", "ticks", "--mark", "1", "a"},
                                       {"--mark", "1=x", "a"},
                                       {"--text", "a"},
                                       {},
                                       {"--kind", "pie", "a"}})
    EXPECT_FALSE(parse_plot(bad));
}

}  // namespace
}  // namespace twinloft::mailbench
