#include "twinloft/mailbench/schedule.h"

#include <algorithm>
#include <cmath>

namespace twinloft::mailbench {

Instant Schedule::intended(std::uint64_t number) const {
  return start_ + Duration(std::llround(static_cast<double>(number) * 1e9 / *settings_.rate));
}

Instant Schedule::window_end() const {
  if (!settings_.duration) return Instant{INT64_MAX};
  return window_start() + *settings_.duration;
}

bool Schedule::over(Instant now) const {
  if (stopped_.load(std::memory_order_relaxed) || now >= window_end()) return true;
  return settings_.messages && granted() >= *settings_.messages;
}

std::variant<Schedule::Grant, Schedule::Later, Schedule::Over> Schedule::take(Instant now) {
  std::uint64_t number = next_.load(std::memory_order_relaxed);
  do {
    if (stopped_.load(std::memory_order_relaxed) || now >= window_end()) return Over{};
    if (settings_.messages && number >= *settings_.messages) return Over{};
    if (settings_.rate && intended(number) > now) return Later{intended(number)};
  } while (!next_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed));
  return Grant{number, settings_.rate ? intended(number) : now};
}

std::uint64_t Schedule::behind(Instant now) const {
  if (!settings_.rate) return 0;
  double seconds = std::chrono::duration<double>(std::min(now, window_end()) - start_).count();
  auto due = static_cast<std::uint64_t>(std::max(0.0, seconds * *settings_.rate));
  if (settings_.messages) due = std::min(due, *settings_.messages);
  return due > granted() ? due - granted() : 0;
}

}  // namespace twinloft::mailbench
