// Who sends what when: numbers messages across threads, and ends the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <variant>

#include "twinloft/base/clock.h"

namespace twinloft::mailbench {

class Schedule {
 public:
  struct Settings {
    std::optional<double> rate{};             // messages a second (open loop); none: closed loop
    std::optional<std::uint64_t> messages{};  // at most so many
    std::optional<Duration> duration{};       // after the warm-up
    Duration warmup{0};
    Duration drain{0};  // what is under way at the end gets so long
  };
  struct Grant {
    std::uint64_t number;
    Instant intended;  // when the message was due: `now` in a closed loop
  };
  struct Later {
    Instant at;
  };
  struct Over {};

  Schedule(const Settings& settings, Instant start) : settings_(settings), start_(start) {}

  std::variant<Grant, Later, Over> take(Instant now);
  // No further message from now on; what is under way may end. Safe in a signal handler.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  bool over(Instant now) const;

  Instant start() const { return start_; }
  Instant window_start() const { return start_ + settings_.warmup; }
  // Far in the future without a duration.
  Instant window_end() const;
  // Messages that were due at `now` and that no client was free to send (open loop).
  std::uint64_t behind(Instant now) const;
  std::uint64_t granted() const { return next_.load(std::memory_order_relaxed); }

 private:
  Instant intended(std::uint64_t number) const;
  Settings settings_;
  Instant start_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace twinloft::mailbench
