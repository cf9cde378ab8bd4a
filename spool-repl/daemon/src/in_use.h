// Waiting for what a killed predecessor still holds.
#pragma once

#include <time.h>

#include "twinloft/base/result.h"

namespace twinloft::repl::daemon {

// The kernel takes an io_uring ring apart after its process is gone, and until then the files that the ring watched
// stay open: right after a kill, sockets and locks of the predecessor are still there. Worth a short wait.
template <class F>
auto wait_while_in_use(F attempt) {
  constexpr int attempts = 60;
  constexpr timespec pause{0, 50'000'000};
  auto result = attempt();
  for (int i = 0; i < attempts && !result && result.error().code == Errc::unavailable; ++i) {
    ::nanosleep(&pause, nullptr);
    result = attempt();
  }
  return result;
}

}  // namespace twinloft::repl::daemon
