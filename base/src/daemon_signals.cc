#include "twinloft/base/daemon_signals.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

namespace twinloft {

std::vector<int> daemon_signals() {
  std::vector<int> out = {SIGTERM, SIGINT, SIGHUP,  SIGUSR1, SIGUSR2,   SIGALRM, SIGVTALRM, SIGPROF,
                          SIGIO,   SIGPWR, SIGXCPU, SIGXFSZ, SIGSTKFLT, SIGTSTP, SIGTTIN,   SIGTTOU};
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) out.push_back(number);
  return out;
}

std::string signal_name(int number) {
  if (number >= SIGRTMIN && number <= SIGRTMAX) return fmt::format("SIGRTMIN+{}", number - SIGRTMIN);
  const char* name = ::sigabbrev_np(number);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

}  // namespace twinloft
