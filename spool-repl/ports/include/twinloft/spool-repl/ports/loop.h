// The owner thread's event loop as seen by net/ and export/: readiness of descriptors, and timers.
//
// io/ implements it on io_uring. All calls and all callbacks happen on the one thread that runs the loop.
#pragma once

#include <cstdint>
#include <functional>

#include "twinloft/base/clock.h"

namespace twinloft::repl::ports {

class Loop {
 public:
  virtual ~Loop() = default;

  enum Interest : unsigned { readable = 1, writable = 2 };
  // Called with the set of what is ready; errors and hang-up count as both. Level-triggered. The handler may
  // change or remove any watch, its own included; it is not called for a descriptor after unwatch(fd)
  // returned.
  using FdHandler = std::function<void(unsigned ready)>;
  virtual void watch(int fd, unsigned interest, FdHandler handler) = 0;  // fd must not be watched already
  virtual void change(int fd, unsigned interest) = 0;                    // 0: keep the watch, deliver nothing
  virtual void unwatch(int fd) = 0;                                      // before the descriptor is closed

  using TimerId = std::uint64_t;                                             // never 0
  virtual TimerId after(Duration delay, std::function<void()> handler) = 0;  // once
  virtual void cancel(TimerId id) = 0;                                       // harmless when it has run

  // Runs `handler` on a later turn of the loop. The only call that other threads may make.
  virtual void post(std::function<void()> handler) = 0;

  virtual Instant now() const = 0;
};

}  // namespace twinloft::repl::ports
