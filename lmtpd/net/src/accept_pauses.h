// How long to wait after a failed accept(2) before the next, and when to log the failure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "twinloft/base/clock.h"

namespace twinloft::lmtpd {

//   taking ──failed()──▶ pausing ──failed()──▶ pausing, for longer ──succeeded()──▶ taking
class AcceptPauses {
 public:
  static constexpr Duration first = std::chrono::milliseconds(100);
  static constexpr Duration most = std::chrono::seconds(1);
  static constexpr Duration between_lines = std::chrono::seconds(60);

  struct Pause {
    Duration time;
    std::uint64_t failures;  // since the last success
    bool say;
  };
  Pause failed(Instant now) {
    if (!pausing_) pausing_ = Pausing{now, {}, 0, first / 2};
    pausing_->time = std::min(pausing_->time * 2, most);
    bool say = !said_at_ || now - *said_at_ >= between_lines;
    if (say) said_at_ = now, pausing_->said = true;
    return {pausing_->time, ++pausing_->failures, say};
  }
  // How long no connection was accepted. nullopt: no failure was logged.
  std::optional<Duration> succeeded(Instant now) {
    auto over = std::exchange(pausing_, std::nullopt);
    if (!over || !over->said) return std::nullopt;
    return now - over->since;
  }

 private:
  struct Pausing {
    Instant since;
    bool said = false;
    std::uint64_t failures = 0;
    Duration time;
  };
  std::optional<Pausing> pausing_;
  std::optional<Instant> said_at_;
};

}  // namespace twinloft::lmtpd
