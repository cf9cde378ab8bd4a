#include "twinloft/spool-repl/stream/bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>

#include "twinloft/base/units.h"

namespace twinloft::repl::stream {

namespace {

constexpr double gathers_seconds = 0.05;
constexpr double useful_bytes = 16 << 10;     // a call for fewer costs more than it sends
constexpr double useful_bytes_min = 1 << 10;  // of a slow link, which must not be silent for long
constexpr double debt_seconds = 1;
constexpr unsigned minutes_of_day = 24 * 60;

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

std::unexpected<Error> no_hours(std::string_view text) {
  return fail(Errc::invalid,
              "\"{}\": expected hours and a rate, such as \"08:00-18:00 4MiB\", or \"unlimited\"", text);
}

// "08:30" at the begin of text, which loses it. 24:00 is the end of the day.
std::optional<unsigned> take_time(std::string_view& text) {
  if (text.size() < 5 || text[2] != ':') return std::nullopt;
  unsigned hour = 0, minute = 0;
  auto number = [](std::string_view digits, unsigned& out) {
    auto [end, ec] = std::from_chars(digits.data(), digits.data() + 2, out);
    return ec == std::errc() && end == digits.data() + 2;
  };
  if (!number(text, hour) || !number(text.substr(3), minute) || minute > 59 ||
      hour * 60 + minute > minutes_of_day)
    return std::nullopt;
  text.remove_prefix(5);
  return hour * 60 + minute;
}

}  // namespace

Status BandwidthPlan::add_hours(std::string_view text) {
  std::string_view rest = text;
  auto from = take_time(rest);
  if (!from || *from == minutes_of_day || !rest.starts_with('-')) return no_hours(text);
  rest.remove_prefix(1);
  auto to = take_time(rest);
  if (!to || *to == *from || !rest.starts_with(' ')) return no_hours(text);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  Hours hours{*from, *to, std::nullopt};
  if (rest != "unlimited") {
    auto rate = parse_size(rest);
    if (!rate) return no_hours(text);
    if (*rate < rate_min)
      return fail(Errc::invalid, "\"{}\": at least {} KiB a second", text, rate_min >> 10);
    hours.rate = *rate;
  }
  hours_.push_back(hours);
  return {};
}

Rate BandwidthPlan::at(unsigned minute) const {
  for (const Hours& h : hours_) {
    bool within = h.from < h.to ? minute >= h.from && minute < h.to : minute >= h.from || minute < h.to;
    if (within) return h.rate;
  }
  return usual_;
}

unsigned minute_of_day(const WallTime& time) {
  auto seconds_since = static_cast<std::time_t>(time.seconds);
  std::tm here{};
  ::localtime_r(&seconds_since, &here);
  return static_cast<unsigned>(here.tm_hour * 60 + here.tm_min);
}

// ---- tokens

double TokenBucket::capacity() const {
  return std::max(static_cast<double>(*rate_) * gathers_seconds, useful_bytes);
}

double TokenBucket::debt_max() const {
  return static_cast<double>(*rate_) * debt_seconds;
}

void TokenBucket::fill(Instant now) {
  tokens_ = std::min(tokens_ + static_cast<double>(*rate_) * seconds(now - filled_), capacity());
  filled_ = now;
}

void TokenBucket::set_rate(Rate rate, Instant now) {
  if (rate == rate_) return;
  if (rate_) fill(now);
  if (!rate_) tokens_ = 0;
  rate_ = rate;
  filled_ = now;
  if (rate_) tokens_ = std::clamp(tokens_, -debt_max(), capacity());
}

std::uint64_t TokenBucket::available(Instant now) {
  if (!rate_) return UINT64_MAX;
  fill(now);
  return tokens_ < 1 ? 0 : static_cast<std::uint64_t>(tokens_);
}

void TokenBucket::take(std::uint64_t bytes, Instant now) {
  if (!rate_) return;
  fill(now);
  tokens_ = std::max(tokens_ - static_cast<double>(bytes), -debt_max());
}

Duration TokenBucket::wait(Instant now) {
  if (!rate_) return Duration(0);
  fill(now);
  double useful = std::clamp(static_cast<double>(*rate_) * gathers_seconds, useful_bytes_min, useful_bytes);
  double missing = useful - tokens_;
  if (missing <= 0) return Duration(0);
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(missing / static_cast<double>(*rate_)));
}

// ---- all links

void SharedBandwidth::set_plan(BandwidthPlan plan) {
  std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}

void SharedBandwidth::look_at_clock(unsigned minute, Instant now) {
  std::lock_guard lock(mutex_);
  bucket_.set_rate(plan_.at(minute), now);
  limits_ = bucket_.rate().has_value();
}

Rate SharedBandwidth::rate() const {
  std::lock_guard lock(mutex_);
  return bucket_.rate();
}

std::uint64_t SharedBandwidth::available(Instant now) {
  if (!limits_) return UINT64_MAX;
  std::lock_guard lock(mutex_);
  return bucket_.available(now);
}

void SharedBandwidth::take(std::uint64_t bytes, Instant now) {
  if (!limits_) return;
  std::lock_guard lock(mutex_);
  bucket_.take(bytes, now);
}

Duration SharedBandwidth::wait(Instant now) {
  std::lock_guard lock(mutex_);
  return bucket_.wait(now);
}

}  // namespace twinloft::repl::stream
