#include "twinloft/base/program.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

namespace twinloft {
namespace {

struct ProgramTest : testing::Test {
  OsClock clock;
  ProgramRunner runner{clock};
  Instant in(Duration d) { return clock.now() + d; }
  Instant later() { return in(std::chrono::seconds(60)); }
};

TEST_F(ProgramTest, WordsAreArgumentsAndNothingElse) {
  auto r = runner.run({"/usr/bin/printf", "%s|", "a b", "$HOME; exit 1", "", "*"}, "", later());
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->out, "a b|$HOME; exit 1||*|");
  EXPECT_EQ(r->exit_code, 0);
  r = runner.run({"/usr/bin/env"}, "", later());
  ASSERT_TRUE(r);
  EXPECT_EQ(r->out, "PATH=/usr/sbin:/usr/bin:/sbin:/bin\nLC_ALL=C\n");
}

TEST_F(ProgramTest, InputAndOutputBeyondAPipesSize) {
  std::string input(1u << 20, 'x');
  auto r = runner.run({"/bin/cat"}, input, later());
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->out, input);
  r = runner.run({"/bin/true"}, input, later());
  ASSERT_TRUE(r) << "one that reads nothing";
  EXPECT_EQ(r->exit_code, 0);
}

TEST_F(ProgramTest, FailuresAreTold) {
  auto r = runner.run({"/bin/ls", "/no/such/file"}, "", later());
  ASSERT_TRUE(r);
  EXPECT_EQ(r->exit_code, 2);
  EXPECT_NE(r->err.find("/no/such/file"), std::string::npos);
  r = runner.run({"/no/such/program"}, "", later());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Errc::not_found);
  EXPECT_NE(r.error().message.find("/no/such/program"), std::string::npos);
  r = runner.run({"/usr/bin/python3", "-c", "import os; os.kill(os.getpid(), 9)"}, "", later());
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message.find("signal 9"), std::string::npos);
}

TEST_F(ProgramTest, TimeAndOutputAreBounded) {
  auto r = runner.run({"/bin/sleep", "1000"}, "", in(std::chrono::milliseconds(50)));
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Errc::timeout);
  r = runner.run({"/usr/bin/yes"}, "", later());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Errc::exhausted);
}

// A program of the program that keeps its output open is not waited for, and does not stay.
TEST_F(ProgramTest, WhatItLeavesBehindIsKilled) {
  auto r = runner.run({"/usr/bin/python3", "-c",
                       "import subprocess\nprint(subprocess.Popen(['/bin/sleep', '1000']).pid, flush=True)"},
                      "", later());
  ASSERT_TRUE(r) << r.error().message;
  pid_t left = std::stoi(r->out);
  ASSERT_GT(left, 1);
  // Killed. The process is a zombie until init or a subreaper has reaped it.
  auto state = [&] {
    auto stat = read_file("/proc/" + std::to_string(left) + "/stat", 4096);
    return stat ? stat->at(stat->rfind(')') + 2) : 'X';
  };
  while (state() != 'X' && state() != 'Z') std::this_thread::yield();
}

TEST_F(ProgramTest, IsCancelledFromAnotherThread) {
  std::thread canceller([&] { runner.cancel(); });
  auto r = runner.run({"/bin/sleep", "1000"}, "", later());
  canceller.join();
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message.find("being stopped"), std::string::npos);
  EXPECT_FALSE(runner.run({"/bin/sleep", "1000"}, "", later())) << "for good";
}

}  // namespace
}  // namespace twinloft
