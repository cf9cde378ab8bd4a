#include "memory_patience.h"

#include <chrono>
#include <new>
#include <thread>

namespace twinloft::lmtpd {

namespace {

constexpr Duration pause = std::chrono::milliseconds(20);
constexpr int waits_max = static_cast<int>(MemoryPatience::longest / pause);
thread_local int waits_left = 0;

// operator new calls this when memory is short, and tries again when it returns.
void wait_or_throw() {
  if (!MemoryPatience::wait()) throw std::bad_alloc();
}

}  // namespace

MemoryPatience::MemoryPatience() : before_(waits_left) {
  waits_left = waits_max;
}
MemoryPatience::~MemoryPatience() {
  waits_left = before_;
}

bool MemoryPatience::wait() {
  if (waits_left == 0) return false;
  --waits_left;
  std::this_thread::sleep_for(pause);
  return true;
}

void MemoryPatience::install() {
  std::set_new_handler(wait_or_throw);
}

}  // namespace twinloft::lmtpd
