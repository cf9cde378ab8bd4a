// Log lines that clients can bring about as often as they like: a few a second, and how many there were besides.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "twinloft/base/clock.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

// Thread-safe; one for each kind of line.
class LogGate {
 public:
  static constexpr std::uint32_t lines_max = 10;  // in `period`
  static constexpr Duration period = std::chrono::seconds(1);

  void put(LogLevel level, Instant now, std::string text) {
    std::uint64_t left_out = 0;
    {
      std::lock_guard lock(mutex_);
      if (now - begun_ >= period) begun_ = now, lines_ = 0;
      if (lines_ == lines_max) {
        ++left_out_;
        last_ = {level, std::move(text)};
        return;
      }
      ++lines_;
      left_out = std::exchange(left_out_, 0);
    }
    write(level, text, left_out);
  }
  // Nothing of its kind has followed: the last one speaks for the rest.
  ~LogGate() {
    if (left_out_ > 0) write(last_.first, last_.second, left_out_ - 1);
  }
  std::uint64_t left_out() {
    std::lock_guard lock(mutex_);
    return left_out_;
  }

 private:
  static void write(LogLevel level, std::string text, std::uint64_t left_out) {
    if (left_out > 0) text += fmt::format(" (and {} more before this)", left_out);
    log_line(level, text);
  }

  std::mutex mutex_;
  Instant begun_;
  std::uint32_t lines_ = 0;
  std::uint64_t left_out_ = 0;  // since the last line
  std::pair<LogLevel, std::string> last_;  // of these
};

}  // namespace twinloft::lmtpd
