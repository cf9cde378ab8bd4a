// Waiting for what a killed predecessor still holds.
#pragma once

#include <time.h>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::daemon {

// The kernel takes an io_uring ring apart after its process is gone, and until then the files that the ring
// watched stay open: right after a kill, sockets and locks of the predecessor are still there. Worth a short
// wait: by a timer where the thread has others to serve, by wait_while_in_use() before it has.
inline constexpr int in_use_attempts = 60;
inline constexpr Duration in_use_pause = std::chrono::milliseconds(50);

template <class F>
auto wait_while_in_use(F attempt) {
  constexpr timespec pause{0, in_use_pause.count()};
  auto result = attempt();
  for (int i = 0; i < in_use_attempts && !result && result.error().code == Errc::unavailable; ++i) {
    ::nanosleep(&pause, nullptr);
    result = attempt();
  }
  return result;
}

}  // namespace twinloft::repl::daemon
