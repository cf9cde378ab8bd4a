// The owner thread's event loop, for net/ and export/: readiness of descriptors, and timers.
//
// io/ implements it with io_uring. All calls except post(), and all callbacks, are on the thread that runs
// the loop.
#pragma once

#include <cstdint>
#include <functional>

#include "twinloft/base/clock.h"

namespace twinloft::repl::ports {

class Loop {
 public:
  virtual ~Loop() = default;

  enum Interest : unsigned { readable = 1, writable = 2 };
  // Called with a set of Interest. Errors and hang-up count as both. Level-triggered. The handler may change
  // or remove any watch, also its own. After unwatch(fd) the handler is not called.
  using FdHandler = std::function<void(unsigned ready)>;
  virtual void watch(int fd, unsigned interest, FdHandler handler) = 0;  // fd must not be watched already
  virtual void change(int fd, unsigned interest) = 0;                    // 0: keeps the watch without events
  virtual void unwatch(int fd) = 0;  // call it before closing the descriptor

  using TimerId = std::uint64_t;                                             // never 0
  virtual TimerId after(Duration delay, std::function<void()> handler) = 0;  // calls it once
  virtual void cancel(TimerId id) = 0;  // allowed after the timer has run

  // Runs `handler` in a later turn of the loop. May be called from any thread.
  virtual void post(std::function<void()> handler) = 0;

  virtual Instant now() const = 0;
};

}  // namespace twinloft::repl::ports
