#include "twinloft/base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "twinloft/base/fd.h"

namespace twinloft {
namespace {

TEST(Process, PointersEndWithANull) {
  std::vector<std::string> texts = {"one", "", "three"};
  std::vector<char*> pointers = exec_pointers(texts);
  ASSERT_EQ(pointers.size(), 4u);
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(pointers[i], texts[i].data());
  EXPECT_EQ(pointers[3], nullptr);
}

TEST(Process, TheEndOfAChildIsItsStatus) {
  pid_t pid = ::fork();
  if (pid == 0) ::_exit(7);
  int status = wait_for_child(pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

// A program that a service starts would inherit the service's ignored and blocked signals.
TEST(Process, SignalsAreAsAProgramExpectsThem) {
  pid_t pid = ::fork();
  if (pid == 0) {
    sigset_t all, blocked;
    ::sigfillset(&all);
    (void)::signal(SIGUSR1, SIG_IGN);
    (void)::sigprocmask(SIG_SETMASK, &all, nullptr);
    reset_signals();
    struct sigaction now{};
    (void)::sigaction(SIGUSR1, nullptr, &now);
    (void)::sigprocmask(SIG_SETMASK, nullptr, &blocked);
    ::_exit(now.sa_handler == SIG_DFL && ::sigismember(&blocked, SIGTERM) == 0 ? 0 : 1);
  }
  EXPECT_EQ(wait_for_child(pid), 0);
}

TEST(Pipe, IsClosedAtAnExecAndReadToItsEnd) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  EXPECT_EQ(::fcntl(pipe->read.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::fcntl(pipe->write.get(), F_GETFD), FD_CLOEXEC);
  ASSERT_TRUE(write_all(pipe->write.get(), as_bytes("some")));
  ASSERT_TRUE(write_all(pipe->write.get(), as_bytes(" text")));
  pipe->write.reset();
  EXPECT_EQ(read_to_end(pipe->read.get(), 9).value_or(""), "some text");
}

TEST(Pipe, WhatIsReadHasALimit) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  ASSERT_TRUE(write_all(pipe->write.get(), as_bytes("some text")));
  auto text = read_to_end(pipe->read.get(), 8);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Errc::exhausted);
}

}  // namespace
}  // namespace twinloft
