// How fast a resync may read, by what the clients' requests take meanwhile.
//
// A resync takes time of the disks and the link that clients wait for. Their mean latency is looked at every `interval`: where it is longer
// than it may be, the rate is halved, down to a floor, so that a resync always ends; else it grows again, and faster while nobody asks for
// anything. It may be the target, or twice what it was while nothing was resynced: on a disk that is slower than the target a resync would
// stand still for nothing otherwise. The idea is that of DRBD's c-delay-target and c-min-rate; the latency is the clients'.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "twinloft/base/clock.h"

namespace twinloft::repl::core {

class Pace {
 public:
  enum class Kind : std::uint8_t { flush, read };  // judged each on its own: there may be many quick ones of the other
  static constexpr Duration interval = std::chrono::milliseconds(100);
  static constexpr std::uint64_t rate_first = 8u << 20, rate_max = 16ull << 30;  // bytes a second

  // `target` 0: as fast as it goes.
  Pace(Duration target, std::uint64_t rate_min) : target_(target), rate_min_(rate_min) { begin(); }

  void answered(Kind kind, Duration took);
  // Call it whenever time may have passed. `working`: a resync is under way. `waits_since`: the oldest flush without an answer, where
  // an answer can be had.
  void advance(Instant now, bool working, std::optional<Instant> waits_since);
  // Whether more may be read now; then `took` is told how much that was.
  bool ready() const { return off() || credit_ > 0; }
  void took(std::uint64_t bytes) { credit_ -= off() ? 0 : static_cast<std::int64_t>(bytes); }
  // When it is ready again; nullopt: it is.
  std::optional<Instant> next() const;
  // Bytes a second, while that is what holds the resync up.
  std::optional<std::uint64_t> held_to() const;

 private:
  struct Latency {
    Duration sum{0};
    std::uint64_t count = 0;
    Duration usual{0};  // while nothing is resynced; 0: not known
  };
  bool off() const { return target_ == Duration(0); }
  void begin();
  void judge(bool working, std::optional<Instant> waits_since);
  Duration limit(const Latency& l) const { return std::max(target_, 2 * l.usual); }

  Duration target_;
  std::uint64_t rate_min_, rate_ = 0;
  std::array<Latency, 2> latency_;
  std::int64_t credit_ = 0;  // bytes
  Instant now_{}, judged_{};
  bool working_ = false, slowed_ = false;
};

}  // namespace twinloft::repl::core
