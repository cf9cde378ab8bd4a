#include "twinloft/base/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdio>
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

TEST_F(ProgramTest, VariablesOfTheCallerAreAdded) {
  ProgramRunner with_home(clock, {"HOME=/h e"});
  auto r = with_home.run({"/usr/bin/env"}, "", later());
  ASSERT_TRUE(r);
  EXPECT_EQ(r->out, "HOME=/h e\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nLC_ALL=C\n");
}

// The program inherits no open descriptor, no ignored signal and no blocked signal of this process.
TEST_F(ProgramTest, NothingOfThisProcessIsHandedOn) {
  Fd kept(::open("/dev/null", O_RDONLY));  // no O_CLOEXEC
  ASSERT_TRUE(kept);
  auto r = runner.run({"/bin/ls", "/proc/self/fd"}, "", later());
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->out, "0\n1\n2\n3\n") << "3 is the directory that it reads";
  auto before = ::signal(SIGUSR1, SIG_IGN);
  sigset_t block, mask_before;
  ::sigemptyset(&block);
  ::sigaddset(&block, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &block, &mask_before);
  r = runner.run({"/bin/grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"}, "", later());
  ::pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
  (void)::signal(SIGUSR1, before);
  ASSERT_TRUE(r) << r.error().message;
  constexpr std::uint64_t of_the_c_library = 3ull << 31;  // signals 32 and 33, which only the C library uses
  unsigned long long blocked = 0, ignored = 0;
  ASSERT_EQ(std::sscanf(r->out.c_str(), "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2) << r->out;
  EXPECT_EQ(blocked, 0u);
  EXPECT_EQ(ignored & ~of_the_c_library, 0u) << r->out;
}

TEST_F(ProgramTest, InputAndOutputBeyondAPipesSize) {
  std::string input(1u << 20, 'x');
  auto r = runner.run({"/bin/cat"}, input, later());
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->out, input);
  r = runner.run({"/bin/true"}, input, later());
  ASSERT_TRUE(r) << "a program that reads nothing";
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
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no zombie is left";
  r = runner.run({"/usr/bin/yes"}, "", later());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Errc::exhausted);
}

// A grandchild that keeps the output open delays nothing, and is killed.
TEST_F(ProgramTest, WhatItLeavesBehindIsKilled) {
  auto r = runner.run({"/usr/bin/python3", "-c",
                       "import subprocess\nprint(subprocess.Popen(['/bin/sleep', '1000']).pid, flush=True)"},
                      "", later());
  ASSERT_TRUE(r) << r.error().message;
  pid_t left = std::stoi(r->out);
  ASSERT_GT(left, 1);
  // The killed process is a zombie until init or a subreaper has reaped it.
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
  EXPECT_FALSE(runner.run({"/bin/sleep", "1000"}, "", later())) << "permanently";
}

}  // namespace
}  // namespace twinloft
