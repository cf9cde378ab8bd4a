#include "twinloft/spool-repl/core/pace.h"

namespace twinloft::repl::core {

namespace {
constexpr std::int64_t second = std::chrono::nanoseconds(std::chrono::seconds(1)).count();

std::int64_t in(Duration d, std::uint64_t rate) {
  return static_cast<std::int64_t>(static_cast<double>(d.count()) / second * static_cast<double>(rate));
}
}  // namespace

// With credit for one interval: a short resync is over before anybody has noticed it.
void Pace::begin() {
  rate_ = std::max(rate_first, rate_min_);
  credit_ = in(interval, rate_);
  slowed_ = false;
}

void Pace::answered(Kind kind, Duration took) {
  Latency& l = latency_[static_cast<std::size_t>(kind)];
  l.sum += took;
  l.count++;
}

void Pace::advance(Instant now, bool working, std::optional<Instant> waits_since) {
  if (off()) return;
  if (working && !working_) begin();
  working_ = working;
  credit_ = std::min(credit_ + in(now - now_, rate_), in(interval, rate_));
  now_ = now;
  if (now - judged_ < interval) return;
  judged_ = now;
  judge(working, waits_since);
}

void Pace::judge(bool working, std::optional<Instant> waits_since) {
  bool asked = waits_since.has_value();
  bool slow = asked && now_ - *waits_since > limit(latency_[static_cast<std::size_t>(Kind::flush)]);
  for (Latency& l : latency_) {
    if (l.count == 0) continue;
    asked = true;
    Duration mean = l.sum / static_cast<std::int64_t>(l.count);
    slow |= mean > limit(l);
    if (!working) l.usual = l.usual == Duration(0) ? mean : (3 * l.usual + mean) / 4;
    l.sum = Duration(0);
    l.count = 0;
  }
  if (!working) return;
  slowed_ = slow || (slowed_ && asked);
  if (slow) rate_ = std::max(rate_ / 2, rate_min_);
  else rate_ = std::min(asked ? rate_ + rate_ / 4 : 2 * rate_, rate_max);
  credit_ = std::min(credit_, in(interval, rate_));
}

std::optional<Instant> Pace::next() const {
  if (ready()) return std::nullopt;
  return now_ + Duration(static_cast<std::int64_t>(static_cast<double>(1 - credit_) / static_cast<double>(rate_) * second) + 1);
}

std::optional<std::uint64_t> Pace::held_to() const {
  if (off() || !working_ || !slowed_) return std::nullopt;
  return rate_;
}

}  // namespace twinloft::repl::core
