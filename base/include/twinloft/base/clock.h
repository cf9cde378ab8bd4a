// Time as an interface: only the implementation of a Clock reads the system's clock, so that the simulator
// can replace it.
#pragma once

#include <chrono>
#include <cstdint>

namespace twinloft {

// Nanoseconds since an arbitrary start. Never decreases.
struct Instant {
  std::int64_t ns = 0;
  auto operator<=>(const Instant&) const = default;
};
using Duration = std::chrono::nanoseconds;

inline Instant operator+(Instant t, Duration d) {
  return {t.ns + d.count()};
}
inline Duration operator-(Instant a, Instant b) {
  return Duration(a.ns - b.ns);
}

// The time of day, for names and header fields. It may jump, so no order depends on it.
struct WallTime {
  std::int64_t seconds = 0;       // since 1970-01-01 00:00 UTC
  std::int32_t microseconds = 0;  // 0..999999
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;  // CLOCK_BOOTTIME in production: it also counts while the machine sleeps
  virtual WallTime wall() const = 0;
};

class OsClock final : public Clock {
 public:
  Instant now() const override;
  WallTime wall() const override;
};

}  // namespace twinloft
