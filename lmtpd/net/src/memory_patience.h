// Lets a thread hand over a result while memory is short. During the life of a MemoryPatience, operator new
// on this thread waits for memory, up to `longest`, then throws. Elsewhere it throws at once.
//
// Only for the few steps that hand over a result: a waiting thread keeps its memory.
#pragma once

#include "twinloft/base/clock.h"

namespace twinloft::lmtpd {

class MemoryPatience {
 public:
  static constexpr Duration longest = std::chrono::seconds(5);

  MemoryPatience();
  ~MemoryPatience();
  MemoryPatience(const MemoryPatience&) = delete;
  MemoryPatience& operator=(const MemoryPatience&) = delete;

  // Waits a little. False: no MemoryPatience lives on this thread, or `longest` is over. For allocations that
  // do not use operator new.
  static bool wait();
  // Installs the handler for operator new in this process. Called before threads that use it start.
  static void install();

 private:
  const int before_;
};

}  // namespace twinloft::lmtpd
