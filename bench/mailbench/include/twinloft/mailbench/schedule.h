// The schedule of a run: gives each message its number and its time, across threads, and ends the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <variant>

#include "twinloft/base/clock.h"
#include "twinloft/mailbench/arrivals.h"

namespace twinloft::mailbench {

class Schedule {
 public:
  struct Settings {
    std::optional<double> rate{};  // messages a second (open loop); nothing: closed loop
    Arrivals::Kind arrivals = Arrivals::Kind::constant;
    std::optional<std::uint64_t> messages{};  // the maximum
    std::optional<Duration> duration{};       // after the warm-up
    Duration ramp{0};    // open loop: the rate grows; closed loop: the clients begin one after the other
    Duration warmup{0};  // after the ramp
    Duration drain{0};   // how long messages in flight may take after the end
    std::uint64_t seed = 1;
  };
  struct Grant {
    std::uint64_t number;
    Instant intended;  // when the message was due: `now` in a closed loop
  };
  struct Later {
    Instant at;
  };
  struct Over {};

  Schedule(const Settings& settings, Instant start);

  // The next message to send; or the time of the next message; or the end of the run. From any thread. An
  // open loop also gives the messages that were due before the end of the window and are not sent, after it.
  std::variant<Grant, Later, Over> take(Instant now);
  // Ends the run: no further message begins, and messages in flight may end. Safe in a signal handler.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  // No message becomes due any more: what is in flight, or late, has until the end of the drain.
  bool ended(Instant now);
  // And no message is to be sent any more.
  bool over(Instant now);

  bool open_loop() const { return settings_.rate.has_value(); }
  Instant start() const { return start_; }
  Instant window_start() const { return start_ + settings_.ramp + settings_.warmup; }
  // Without a duration and before stop(): far in the future.
  Instant window_end() const;
  bool in_window(Instant at) const { return at >= window_start() && at < window_end(); }
  // When this client of `clients` makes its connection.
  Instant client_start(std::size_t client, std::size_t clients) const;
  // The number of messages that were due before `now` and the window's end, and were not sent (open loop).
  std::uint64_t behind(Instant now);
  std::uint64_t granted() const { return next_.load(std::memory_order_relaxed); }

 private:
  bool limit_reached() const { return settings_.messages && granted() >= *settings_.messages; }
  Settings settings_;
  Instant start_;
  std::mutex mutex_;                  // of arrivals_
  std::optional<Arrivals> arrivals_;  // the next message, in an open loop
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<std::int64_t> stop_ns_{INT64_MAX};  // when a worker first saw stop()
};

}  // namespace twinloft::mailbench
