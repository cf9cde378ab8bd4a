#include "twinloft/mailbench/schedule.h"

#include <algorithm>

namespace twinloft::mailbench {

Schedule::Schedule(const Settings& settings, Instant start) : settings_(settings), start_(start) {
  if (settings.rate) arrivals_.emplace(settings.arrivals, *settings.rate, settings.ramp, settings.seed);
}

Instant Schedule::window_end() const {
  Instant stop{stop_ns_.load(std::memory_order_relaxed)};
  return settings_.duration ? std::min(stop, window_start() + *settings_.duration) : stop;
}

Instant Schedule::client_start(std::size_t client, std::size_t clients) const {
  if (open_loop() || clients == 0) return start_;
  return start_ + settings_.ramp * static_cast<std::int64_t>(client) / static_cast<std::int64_t>(clients);
}

bool Schedule::ended(Instant now) {
  if (stopped_.load(std::memory_order_relaxed)) {
    std::int64_t none = INT64_MAX;
    stop_ns_.compare_exchange_strong(none, now.ns, std::memory_order_relaxed);
    return true;
  }
  return now >= window_end() || limit_reached();
}

bool Schedule::over(Instant now) {
  if (!ended(now)) return false;
  if (!arrivals_ || limit_reached() || stopped_.load(std::memory_order_relaxed)) return true;
  std::scoped_lock lock(mutex_);
  return start_ + arrivals_->next() >= window_end();
}

std::variant<Schedule::Grant, Schedule::Later, Schedule::Over> Schedule::take(Instant now) {
  if (!arrivals_) {
    std::uint64_t number = next_.load(std::memory_order_relaxed);
    do {
      if (ended(now) || (settings_.messages && number >= *settings_.messages)) return Over{};
    } while (!next_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed));
    return Grant{number, now};
  }
  std::scoped_lock lock(mutex_);
  Instant due = start_ + arrivals_->next();
  if (stopped_.load(std::memory_order_relaxed) || limit_reached() || due >= window_end()) return Over{};
  if (due > now) return Later{due};
  arrivals_->advance();
  return Grant{next_.fetch_add(1, std::memory_order_relaxed), due};
}

std::uint64_t Schedule::behind(Instant now) {
  if (!arrivals_) return 0;
  std::scoped_lock lock(mutex_);
  std::uint64_t limit = settings_.messages ? *settings_.messages - granted() : UINT64_MAX, count = 0;
  Instant end = std::min(now, window_end());
  for (Arrivals ahead = *arrivals_; count < limit && start_ + ahead.next() < end; ahead.advance()) ++count;
  return count;
}

}  // namespace twinloft::mailbench
