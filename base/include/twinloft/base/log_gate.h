// Limits log lines that clients can cause at will: a few a second, with the number of lines left out.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "twinloft/base/clock.h"
#include "twinloft/base/log.h"

namespace twinloft {

// Decides whether one more line of a kind is logged in this second. Thread-safe.
class LogRate {
 public:
  static constexpr Duration period = std::chrono::seconds(1);

  explicit LogRate(std::uint32_t lines_max) : lines_max_(lines_max) {}
  // nullopt: this line is left out. Otherwise: the number of lines left out since the last logged line.
  std::optional<std::uint64_t> admit(Instant now) {
    std::lock_guard lock(mutex_);
    if (now - begun_ >= period) begun_ = now, lines_ = 0;
    if (lines_ == lines_max_) return ++left_out_, std::nullopt;
    ++lines_;
    return std::exchange(left_out_, 0);
  }
  std::uint64_t left_out() {
    std::lock_guard lock(mutex_);
    return left_out_;
  }

 private:
  const std::uint32_t lines_max_;
  std::mutex mutex_;
  Instant begun_;
  std::uint32_t lines_ = 0;
  std::uint64_t left_out_ = 0;  // since the last line
};

// Thread-safe; one for each kind of line.
class LogGate {
 public:
  static constexpr std::uint32_t lines_max = 10;  // a second

  void put(LogLevel level, Instant now, std::string text) {
    if (auto left_out = rate_.admit(now)) return write(level, std::move(text), *left_out);
    std::lock_guard lock(mutex_);
    last_ = {level, std::move(text)};
  }
  // No line of this kind has followed, so the last line left out is logged with the count.
  ~LogGate() {
    if (std::uint64_t count = left_out(); count > 0) write(last_.first, last_.second, count - 1);
  }
  std::uint64_t left_out() { return rate_.left_out(); }

 private:
  static void write(LogLevel level, std::string text, std::uint64_t left_out) {
    if (left_out > 0) text += fmt::format(" (and {} more before this)", left_out);
    log_line(level, text);
  }

  LogRate rate_{lines_max};
  std::mutex mutex_;
  std::pair<LogLevel, std::string> last_;  // the last line left out
};

}  // namespace twinloft
