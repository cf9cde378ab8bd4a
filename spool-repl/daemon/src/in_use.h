// Waits for the files of a killed earlier process.
#pragma once

#include <time.h>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::daemon {

// The kernel ends an io_uring ring after the process has ended, and keeps the ring's files open until then.
// So sockets and locks of a killed process exist for a short time. Wait by a timer on a thread that serves
// others, and otherwise by wait_while_in_use().
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
