// How fast a resync may read, by what the clients' requests take meanwhile. It belongs to the reader: the
// source of resyncs.
//
// A resync takes time of the disks and the link that clients wait for. The mean latency of their requests is
// looked at every `interval`: where it is longer than it may be, the rate is halved, down to a floor, so that
// a resync always ends; else it grows again, and faster while nobody asks for anything. It may be the target,
// or twice what is usual without a resync: on a disk that is slower than the target a resync would be held up
// for nothing otherwise. What is usual is learnt before a resync, and, while one is held up, from a rest that
// it takes now and then.
//
// The idea is that of DRBD's c-delay-target and c-min-rate; the latency is the clients'.
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
  };  // judged each on its own: there may be many quick ones of the other
  static constexpr Duration interval = std::chrono::milliseconds(100);
  static constexpr std::uint64_t rate_first = 8u << 20, rate_max = 16ull << 30;  // bytes a second
  static constexpr std::uint64_t read_min = 64u << 10;  // bytes that a smaller read counts as

  // `target` 0: as fast as it goes.
  Pace(Duration target, std::uint64_t rate_min) : target_(target), rate_min_(std::min(rate_min, rate_max)) {
    begin();
  }

  // While writes wait for a replica that is away, nothing tells how long a flush takes.
  void note_suspended(Instant now) { suspended_until_ = now; }
  bool tells(Instant flush_since) const { return flush_since > suspended_until_; }
  void answered(Kind kind, Duration took);
  // Call it whenever time may have passed. `working`: a resync is under way. True: judge() is due.
  bool advance(Instant now, bool working);
  struct Waiting {
    std::array<std::optional<Instant>, 2> since;  // by kind: when the oldest request came that has no answer
                                                  // yet
    bool asked = false;                           // somebody waits, for whatever
  };
  void judge(const Waiting& waiting);
  // Whether more may be read now; then took() gets how much that was.
  bool ready();
  void took(std::uint64_t bytes);
  // When it is ready again; nullopt: it is.
  std::optional<Instant> next() const;
  // Bytes a second, while that is what holds the resync up.
  std::optional<std::uint64_t> held_to() const;

 private:
  static constexpr unsigned rest_intervals = 3, rest_every = 100;
  struct Latency {
    Duration sum{0};
    std::uint64_t count = 0;
    Duration usual{0};  // without a resync; 0: not known
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
