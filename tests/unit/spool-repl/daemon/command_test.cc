#include "command.h"

#include <gtest/gtest.h>

namespace twinloft::repl::daemon::command {
namespace {

TEST(CommandTest, EachLineIsOneCommand) {
  EXPECT_EQ(std::get<Status>(*parse("status")).form, Status::Form::text);
  EXPECT_EQ(std::get<Status>(*parse("status json")).form, Status::Form::json);
  EXPECT_EQ(std::get<Status>(*parse("status line")).form, Status::Form::line);
  EXPECT_EQ(std::get<Events>(*parse("events 20 json")).range, "20 json");
  EXPECT_FALSE(std::get<Promote>(*parse("promote")).force);
  EXPECT_TRUE(std::get<Promote>(*parse("promote force")).force);
  EXPECT_FALSE(std::get<Promote>(*parse("promote force")).accept_loss);
  EXPECT_TRUE(std::get<Promote>(*parse("promote accept-loss")).force);
  EXPECT_TRUE(std::get<Promote>(*parse("promote accept-loss")).accept_loss);
  EXPECT_FALSE(std::get<Discard>(*parse("discard")).force);
  EXPECT_TRUE(std::get<Discard>(*parse("discard force")).force);
  EXPECT_TRUE(std::holds_alternative<Demote>(*parse("demote")));
  EXPECT_TRUE(std::get<Connect>(*parse("connect")).wanted);
  EXPECT_FALSE(std::get<Connect>(*parse("disconnect")).wanted);
}

TEST(CommandTest, AnythingElseIsNone) {
  for (const char* line : {"", "stat", "status  json", "status xml", "promote forced", "Promote",
                           "demote force", "events", "connect 2"}) {
    auto parsed = parse(line);
    ASSERT_FALSE(parsed) << line;
    EXPECT_EQ(parsed.error().code, Errc::invalid) << line;
  }
  EXPECT_EQ(parse(std::string(200, 'x')).error().message.size(),
            std::string("unknown command \"\"").size() + 64);
}

TEST(CommandTest, WhatAStopLetsPass) {
  EXPECT_TRUE(helps_a_stop(*parse("connect"), false));
  EXPECT_TRUE(helps_a_stop(*parse("promote force"), true));
  EXPECT_FALSE(helps_a_stop(*parse("promote force"), false)) << "no caller waits for it";
  EXPECT_FALSE(helps_a_stop(*parse("promote accept-loss"), true));
  for (const char* line : {"promote", "demote", "disconnect", "discard"})
    EXPECT_FALSE(helps_a_stop(*parse(line), true)) << line;
  for (const char* line : {"status", "status line", "events 5"})
    EXPECT_TRUE(only_reads(*parse(line))) << line;
  for (const char* line : {"promote", "demote", "connect", "discard"})
    EXPECT_FALSE(only_reads(*parse(line))) << line;
}

}  // namespace
}  // namespace twinloft::repl::daemon::command
