#include "twinloft/spool-repl/core/pace.h"

namespace twinloft::repl::core {

namespace {
constexpr double second = 1e9;  // ns
double in(Duration d, std::uint64_t rate) {
  return static_cast<double>(d.count()) / second * static_cast<double>(rate);
}
}  // namespace

// A very short resync is not slowed down. At the slowest rate, one whole piece can still be read.
double Pace::burst() const {
  return std::max(in(interval, rate_), 256.0 * 1024);
}

void Pace::begin() {
  rate_ = std::max(rate_first, rate_min_);
  credit_ = burst();
  rest_left_ = worked_ = 0;
  refused_ = held_ = false;
  taken_ = 0;
}

void Pace::answered(Kind kind, Duration took) {
  if (off()) return;
  Latency& l = latency_[static_cast<std::size_t>(kind)];
  l.sum += took;
  l.count++;
}

bool Pace::advance(Instant now, bool working) {
  if (off()) return false;
  if (working && !working_) begin();
  working_ = working;
  if (!resting()) credit_ = std::min(credit_ + in(std::min(now - now_, interval), rate_), burst());
  now_ = now;
  return now - judged_ >= interval;
}

// Whether requests of this kind take too long. The usual latency is learned during a rest and without a
// resync. A single slow interval counts only in part, since its cause may be unrelated.
bool Pace::look(Latency& l, const std::optional<Instant>& since) {
  bool slow = since && now_ - *since > limit(l);
  if (l.count == 0) return slow;
  Duration mean = l.sum / static_cast<std::int64_t>(l.count);
  // In the first interval of a rest, requests may still be slow from before it.
  bool learns = !working_ || (resting() && rest_left_ < rest_intervals);
  if (learns) l.usual = l.usual == Duration(0) ? mean : (3 * l.usual + std::min(mean, 2 * l.usual)) / 4;
  slow |= mean > limit(l);
  l.sum = Duration(0);
  l.count = 0;
  return slow;
}

void Pace::judge(const Waiting& waiting) {
  judged_ = now_;
  bool asked = waiting.asked, slow = false, unknown = false;
  for (std::size_t k = 0; k < latency_.size(); ++k) {
    asked |= latency_[k].count > 0 || waiting.since[k].has_value();
    bool of_this = look(latency_[k], waiting.since[k]);
    slow |= of_this;
    unknown |= of_this && latency_[k].usual == Duration(0);
  }
  if (!working_) return;
  if (resting()) {
    --rest_left_;
  } else {
    held_ = refused_ && (slow || (held_ && asked));
    ++worked_;
    if (slow && worked_ >= (unknown ? rest_every / 10 : rest_every)) rest_left_ = rest_intervals, worked_ = 0;
    change_rate(slow, asked);
  }
  refused_ = false;
  taken_ = 0;
}

// The rate grows only to twice the used rate, since a much higher rate would take long to come down.
void Pace::change_rate(bool slow, bool asked) {
  std::uint64_t used = std::max(rate_first,
                                2 * taken_ * (std::chrono::nanoseconds(std::chrono::seconds(1)) / interval));
  if (slow)
    rate_ = std::max(rate_ / 2, rate_min_);
  else
    rate_ = std::max({rate_min_, std::min({asked ? rate_ + rate_ / 4 : 2 * rate_, used, rate_max})});
  credit_ = std::min(credit_, burst());
}

bool Pace::ready() {
  bool yes = off() || (credit_ > 0 && !resting());
  refused_ |= !yes;
  return yes;
}

void Pace::took(std::uint64_t bytes) {
  if (off()) return;
  credit_ -= static_cast<double>(std::max(bytes, read_min));
  taken_ += bytes;
}

std::optional<Instant> Pace::next() const {
  if (off() || !working_) return std::nullopt;
  if (resting()) return judged_ + interval;
  if (credit_ > 0) return std::nullopt;
  return now_ + Duration(static_cast<std::int64_t>((1 - credit_) / static_cast<double>(rate_) * second) + 1);
}

std::optional<std::uint64_t> Pace::held_to() const {
  if (off() || !working_ || !held_) return std::nullopt;
  return rate_;
}

}  // namespace twinloft::repl::core
