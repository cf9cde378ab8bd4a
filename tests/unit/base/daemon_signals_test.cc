#include "twinloft/base/daemon_signals.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

namespace twinloft {
namespace {

TEST(DaemonSignals, NamesThem) {
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(SIGRTMIN), "SIGRTMIN+0");
  EXPECT_EQ(signal_name(SIGRTMAX), "SIGRTMIN+" + std::to_string(SIGRTMAX - SIGRTMIN));
  EXPECT_EQ(signal_name(0), "signal 0");
  EXPECT_EQ(signal_name(SIGRTMAX + 1), "signal " + std::to_string(SIGRTMAX + 1));
}

// Each signal of the kernel is in the list. The exceptions: its default action is harmless, it cannot be
// caught, or it has its own meaning.
TEST(DaemonSignals, NoneIsForgotten) {
  std::vector<int> taken = daemon_signals();
  const int others[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGPIPE, SIGQUIT,
                        SIGILL,  SIGTRAP, SIGABRT, SIGBUS,  SIGFPE, SIGSEGV,  SIGSYS};
  for (int number = 1; number <= SIGRTMAX; ++number) {
    if (number >= 32 && number < SIGRTMIN) continue;  // used by the C library
    bool is_taken = std::count(taken.begin(), taken.end(), number) == 1;
    bool is_other = std::count(std::begin(others), std::end(others), number) == 1;
    EXPECT_NE(is_taken, is_other) << signal_name(number);
  }
}

}  // namespace
}  // namespace twinloft
