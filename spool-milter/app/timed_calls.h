// Calls that may block, with a bound on the wait: in a user database, or on a spool that hangs.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

namespace twinloft::spool_milter {

// Runs each call on one of a few threads. A thread that is blocked in the kernel stays so, and keeps no
// object alive but the call: the threads are detached.
class TimedCalls {
 public:
  // threads: at most so many calls at a time; further ones wait.
  explicit TimedCalls(std::size_t threads);
  using Until = std::chrono::steady_clock::time_point;

  // Thread-safe. nullopt: there was no result in time, or the call has thrown. It may still run later.
  template <class Result>
  std::optional<Result> call(Until until, std::function<Result()> function) {
    auto out = std::make_shared<std::optional<Result>>();
    bool done = run(until, [out, function = std::move(function)] { out->emplace(function()); });
    return done ? std::move(*out) : std::nullopt;
  }

 private:
  struct Shared;
  // False: not done in time.
  bool run(Until until, std::function<void()> function);
  const std::shared_ptr<Shared> shared_;
};

}  // namespace twinloft::spool_milter
