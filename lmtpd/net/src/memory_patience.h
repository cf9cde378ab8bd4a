// Memory that has run out for a moment, where a thread holds somebody's result and must hand it over. While
// one of these lives, operator new waits on its thread for memory, up to `longest`; then it throws, as it
// does elsewhere at once.
//
// Only for the few steps that a result takes on its way: what waits here keeps the memory that it has.
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

  // Waits a little; false: this thread is not patient, or not any more. For allocations that operator new
  // does not make.
  static bool wait();
  // Makes operator new of this process wait so. Once, before there are threads that rely on it.
  static void install();

 private:
  const int before_;
};

}  // namespace twinloft::lmtpd
