// How many bytes a second the links may send: of one link, and of all links of a process.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::stream {

// Bytes a second. Nothing: no limit.
using Rate = std::optional<std::uint64_t>;
// The least: a record of 2 MiB takes 16 s then, and a peer may take `slow_peer`, 20 s, for it.
inline constexpr std::uint64_t rate_min = 128 << 10;

// A rate, with other rates at some hours.
class BandwidthPlan {
 public:
  BandwidthPlan() = default;
  explicit BandwidthPlan(Rate usual) : usual_(usual) {}

  // text: "08:00-18:00 4MiB", or "22:00-06:00 unlimited". The end does not belong to the hours, and may be on
  // the next day. Of hours that overlap, the first added count. Errors: Errc::invalid.
  Status add_hours(std::string_view text);
  Rate at(unsigned minute_of_day) const;
  bool operator==(const BandwidthPlan&) const = default;

 private:
  struct Hours {
    unsigned from, to;  // minutes of the day
    Rate rate;
    bool operator==(const Hours&) const = default;
  };
  Rate usual_;
  std::vector<Hours> hours_;
};

// The minute of the day here, by the machine's time zone.
unsigned minute_of_day(const WallTime& time);

// Tokens are bytes. They gather for 50 ms at most, so a pause saves up no burst.
class TokenBucket {
 public:
  void set_rate(Rate rate, Instant now);
  Rate rate() const { return rate_; }
  std::uint64_t available(Instant now);  // without a limit: the largest number
  // More than are available: the bucket is in debt, for one second at most, and later bytes wait for it.
  void take(std::uint64_t bytes, Instant now);
  // Until a useful number of tokens is available. 0: now.
  Duration wait(Instant now);

 private:
  void fill(Instant now);
  double capacity() const;
  double debt_max() const;
  Rate rate_;
  double tokens_ = 0;
  Instant filled_;
};

// The bucket of all links of a process, on their threads.
class SharedBandwidth {
 public:
  void set_plan(BandwidthPlan plan);
  void look_at_clock(unsigned minute_of_day, Instant now);  // now and then, for the plan's hours
  Rate rate() const;
  std::uint64_t available(Instant now);
  void take(std::uint64_t bytes, Instant now);
  Duration wait(Instant now);

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> limits_{false};  // without a limit, no link takes the lock
  BandwidthPlan plan_;
  TokenBucket bucket_;
};

}  // namespace twinloft::repl::stream
