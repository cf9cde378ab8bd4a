#include "twinloft/spool-repl/compress/chooser.h"

#include <algorithm>

namespace twinloft::repl::compress {

namespace {
constexpr double weight_new = 0.2;                   // of one measurement
constexpr double gain_min = 1.05;                    // that a more expensive codec must have
constexpr std::size_t measured_bytes_min = 8 << 10;  // smaller frames say little about a codec
constexpr std::uint64_t frames_between_trials = 64;
constexpr std::uint64_t trials_between_slow = 16;  // of codecs that are far too slow now
constexpr Duration line_rate_lasts = std::chrono::minutes(1);

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
}  // namespace

void Chooser::note_frame(Codec codec, std::size_t raw, std::size_t packed, Duration time) {
  if (raw < measured_bytes_min || codec == Codec::none) return;
  Speed& s = speeds_[static_cast<std::size_t>(codec)];
  double weight = s.frames++ == 0 ? 1 : weight_new;
  double speed = static_cast<double>(raw) / std::max(seconds(time), 1e-9);
  double ratio = static_cast<double>(packed) / static_cast<double>(raw);
  s.bytes_per_second += weight * (speed - s.bytes_per_second);
  s.ratio += weight * (ratio - s.ratio);
}

void Chooser::note_line(std::uint64_t bytes, Duration time, Instant now) {
  double rate = static_cast<double>(bytes) / std::max(seconds(time), 1e-9);
  line_ = line_rate(now) ? *line_ + weight_new * (rate - *line_) : rate;
  line_at_ = now;
}

std::optional<double> Chooser::line_rate(Instant now) const {
  return line_ && now - line_at_ <= line_rate_lasts ? line_ : std::nullopt;
}

double Chooser::carries(Codec codec, double line) const {
  const Speed& s = speeds_[static_cast<std::size_t>(codec)];
  return std::min(s.bytes_per_second * threads_, line / std::max(s.ratio, 1e-3));
}

// From the cheapest to the most expensive.
void Chooser::choose(Instant now) {
  best_ = Codec::none;
  auto line = line_rate(now);
  if (!line) return;
  double most = *line;
  for (Codec c : all_codecs) {
    if (!allowed_.has(c) || carries(c, *line) < most * gain_min) continue;
    best_ = c;
    most = carries(c, *line);
  }
}

bool Chooser::is_far_too_slow(Codec codec) const {
  return 2 * threads_ * speeds_[static_cast<std::size_t>(codec)].bytes_per_second < carries(best_, *line_);
}

Codec Chooser::trial() {
  bool begins = frames_ <= all_codecs.size(), slow = ++trials_ % trials_between_slow == 0;
  for (std::size_t i = 0; i < all_codecs.size(); ++i) {
    Codec c = all_codecs[turn_++ % all_codecs.size()];
    if (c == Codec::none || c == best_ || !allowed_.has(c)) continue;
    if (begins || is_far_too_slow(c) == slow) return c;
  }
  return best_;
}

Codec Chooser::next(std::size_t raw, Instant now) {
  choose(now);
  if (!line_rate(now) || raw < measured_bytes_min) return best_;
  // The first frames try each codec, then one of many frames does.
  if (frames_++ >= all_codecs.size() && frames_ % frames_between_trials != 0) return best_;
  return trial();
}

}  // namespace twinloft::repl::compress
