#include "twinloft/mailbench/lda.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "twinloft/mailbench/options.h"
#include "twinloft/mailbench/verify.h"

namespace twinloft::mailbench {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class LdaTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "mb-lda.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    for (int user = 1; user <= 4; ++user)
      for (const char* part : {"tmp", "new", "cur"})
        fs::create_directories(directory_ + "/spool/user" + std::to_string(user) + "/" + part);
    load_.users = 4;
    load_.clients = 3;
    load_.schedule.messages = 40;
    load_.schedule.drain = 60s;
    load_.account = directory_ + "/account";
  }
  void TearDown() override { fs::remove_all(directory_); }

  Result<LdaResult> run(const std::string& command, std::map<std::string, std::string> values = {}) {
    auto parsed = argv::Template::parse(command);
    EXPECT_TRUE(parsed) << command;
    lda_.emplace(LdaOptions{.command = *parsed, .values = std::move(values)});
    return run_lda(load_, *lda_);
  }

  std::string directory_;
  LoadOptions load_;
  std::optional<LdaOptions> lda_;
};

TEST_F(LdaTest, EachMessageIsAProgramWithItsArgumentsAndItsText) {
  auto r = run("/usr/bin/tee %home%/new/%id%", {{"home", directory_ + "/spool/%n"}});
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->load.stats.outcomes[0], 40u);
  EXPECT_EQ(r->load.stats.codes.at(0), 40u);
  EXPECT_EQ(r->load.stats.latency.good.count(), 40u);
  EXPECT_GT(r->agent_cpu_ns, 0u);
  auto v = run_verify(
      {.accounts = {load_.account}, .spool = directory_ + "/spool", .maildir_formats = {"%n"}});
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_TRUE(v->good()) << verify_text({}, *v);
  EXPECT_EQ(v->acknowledged_found, 40u);
  EXPECT_NE(lda_text(load_, *lda_, *r).find("exit codes     0: 40"), std::string::npos);
  EXPECT_NE(lda_json(load_, *lda_, *r).find("\"kind\": \"mailbench-lda\""), std::string::npos);
}

TEST_F(LdaTest, ExitCodesAndComplaintsAreTold) {
  load_.schedule.messages = 6;
  auto r = run("/usr/bin/env --not-an-option");  // exits with 125
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->load.stats.outcomes[static_cast<std::size_t>(Outcome::refused)], 6u);
  EXPECT_EQ(r->load.stats.codes.at(125), 6u);
  EXPECT_EQ(r->load.stats.latency.good.count(), 0u);
  EXPECT_EQ(r->load.stats.latency.failed.count(), 6u);
  ASSERT_FALSE(r->complaints.empty());
  EXPECT_NE(lda_text(load_, *lda_, *r).find("complaint"), std::string::npos);
}

TEST_F(LdaTest, AProgramThatDoesNotEndHasNoOutcome) {
  load_.schedule.messages = 2;
  load_.timeout = 50ms;
  auto r = run("/bin/sleep 1000");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->load.stats.outcomes[static_cast<std::size_t>(Outcome::unknown)], 2u);
  EXPECT_NE(lda_text(load_, *lda_, *r).find("none: 2"), std::string::npos);
}

TEST_F(LdaTest, WhatCannotRunIsAnErrorAtOnce) {
  auto missing = run("/nonexistent/agent %to%");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::unavailable);
  EXPECT_NE(missing.error().message.find("/nonexistent/agent"), std::string::npos);
  // The account was not begun, so the next run may use the file.
  std::ofstream(directory_ + "/no-program") << "#";
  auto not_executable = run(directory_ + "/no-program");
  ASSERT_FALSE(not_executable);
  EXPECT_EQ(not_executable.error().code, Errc::unavailable);
  auto unknown_value = run("/bin/true %maildir%");
  ASSERT_FALSE(unknown_value);
  EXPECT_EQ(unknown_value.error().code, Errc::invalid);
}

// A program that outlives the run is ended at the end of the drain, and has no outcome.
TEST_F(LdaTest, TheDrainEndsPrograms) {
  load_.schedule.messages = 3;
  load_.schedule.drain = 50ms;
  load_.timeout = 1h;
  auto r = run("/bin/sleep 100000");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->load.stats.outcomes[static_cast<std::size_t>(Outcome::unknown)], 3u);
}

// Late messages are not begun once the drain is over: each that was begun has an outcome.
TEST_F(LdaTest, WhatIsLateAtTheEndOfTheDrainIsNotBegun) {
  load_.schedule.messages.reset();
  load_.schedule.rate = 1000;
  load_.schedule.duration = 100ms;
  load_.schedule.drain = 50ms;
  load_.timeout = 1h;
  auto r = run("/bin/sleep 100000");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->load.messages_started, r->load.stats.attempts);
  EXPECT_GT(r->load.behind, 0u);
}

TEST_F(LdaTest, AnOpenLoopOfPrograms) {
  load_.schedule.rate = 200;
  auto r = run("/usr/bin/tee %home%/new/%id%", {{"home", directory_ + "/spool/%n"}});
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->load.stats.latency.good.count(), 40u);
  EXPECT_EQ(r->load.stats.service.good.count(), 40u);
  EXPECT_NE(lda_text(load_, *lda_, *r).find("open: 200.0 messages a second"), std::string::npos);
  EXPECT_NE(lda_json(load_, *lda_, *r).find("from_sending_ms"), std::string::npos);
}

TEST(LdaOptionsTest, TheCommandLine) {
  auto c = parse_lda({"--command", "/bin/agent -d %user%", "-d", "5s", "-j", "3", "--value",
                      "home=/srv/%d/%n", "--size", "8KiB"});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->load.clients, 3u);
  EXPECT_EQ(c->lda->values.at("home"), "/srv/%d/%n");
  EXPECT_FALSE(parse_lda({"-d", "5s"}));
  EXPECT_FALSE(parse_lda({"--command", "/bin/agent %nope%", "-d", "5s"}));
  EXPECT_FALSE(parse_lda({"--command", "/bin/agent", "-d", "5s", "--value", "home"}));
  EXPECT_FALSE(parse_lda({"--command", "/bin/agent", "-d", "5s", "--value", "hom=/x"}));
}

}  // namespace
}  // namespace twinloft::mailbench
