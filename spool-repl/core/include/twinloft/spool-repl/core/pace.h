// The rate at which a resync may read, by the latency of the clients' requests. It belongs to the reader: the
// source of resyncs.
//
// A resync uses time of the disks and the link. Every `interval`, the mean latency of the clients' requests
// is compared with a limit. Above the limit, the rate is halved, down to a minimum, so that a resync always
// ends. Below, the rate grows, and grows faster without requests. The limit is the target, or twice the usual
// latency without a resync, since a disk that is slower than the target would slow the resync down without
// need. The usual latency is measured before a resync, and in pauses of a resync that is slowed down.
//
// The idea is that of DRBD's c-delay-target and c-min-rate, with the latency of clients.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "twinloft/base/clock.h"

namespace twinloft::repl::core {

class Pace {
 public:
  enum class Kind : std::uint8_t {
    flush,
    read
  };  // each kind has its own limit, since fast requests of one kind would hide slow requests of the other
  static constexpr Duration interval = std::chrono::milliseconds(100);
  static constexpr std::uint64_t rate_first = 8u << 20, rate_max = 16ull << 30;  // bytes a second
  static constexpr std::uint64_t read_min = 64u << 10;  // a smaller read counts as this many bytes

  // target: 0 for no limit.
  Pace(Duration target, std::uint64_t rate_min) : target_(target), rate_min_(std::min(rate_min, rate_max)) {
    begin();
  }

  // While writes wait for an absent replica, the time of a flush says nothing about the disks.
  void note_suspended(Instant now) { suspended_until_ = now; }
  bool tells(Instant flush_since) const { return flush_since > suspended_until_; }
  void answered(Kind kind, Duration took);
  // Call it when time may have passed. working: a resync runs. True: judge() is due.
  bool advance(Instant now, bool working);
  struct Waiting {
    std::array<std::optional<Instant>, 2> since;  // by kind: the time of the oldest request without an answer
    bool asked = false;                           // any request waits
  };
  void judge(const Waiting& waiting);
  // Whether the resync may read now. After a read, call took() with its bytes.
  bool ready();
  void took(std::uint64_t bytes);
  // The time at which ready() becomes true again; nullopt: it is true.
  std::optional<Instant> next() const;
  // The rate in bytes a second, while it slows the resync down.
  std::optional<std::uint64_t> held_to() const;

 private:
  static constexpr unsigned rest_intervals = 3, rest_every = 100;
  struct Latency {
    Duration sum{0};
    std::uint64_t count = 0;
    Duration usual{0};  // without a resync; 0: unknown
  };
  bool off() const { return target_ == Duration(0); }
  bool resting() const { return rest_left_ > 0; }
  Duration limit(const Latency& l) const { return std::max(target_, 2 * l.usual); }
  double burst() const;
  void begin();
  bool look(Latency& l, const std::optional<Instant>& since);
  void change_rate(bool slow, bool asked);

  Duration target_;
  std::uint64_t rate_min_, rate_ = 0;
  std::array<Latency, 2> latency_;
  double credit_ = 0;        // bytes
  std::uint64_t taken_ = 0;  // bytes, in this interval
  Instant now_{}, judged_{}, suspended_until_{};
  unsigned rest_left_ = 0, worked_ = 0;  // intervals
  bool working_ = false, refused_ = false, held_ = false;
};

}  // namespace twinloft::repl::core
