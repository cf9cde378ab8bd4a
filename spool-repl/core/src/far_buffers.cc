#include "far_buffers.h"

#include <algorithm>

namespace twinloft::repl::core {

// ---- times

void WriteTimes::note(RecordNo end, Instant now) {
  if (!points_.empty() && (points_.back().end == end || now - points_.back().at < spacing_)) return;
  points_.push_back({end, now});
  if (points_.size() <= points_max) return;
  // Times of a long lag are less precise.
  spacing_ = 2 * spacing_;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points_.size(); i += 2) points_[kept++] = points_[i];
  points_.resize(kept);
}

void WriteTimes::drop_before(RecordNo no) {
  while (points_.size() > 1 && points_[1].end <= no) points_.pop_front();
  if (points_.size() <= 1) spacing_ = interval_;
}

std::optional<Instant> WriteTimes::before(RecordNo no) const {
  if (points_.empty()) return std::nullopt;
  auto later = std::partition_point(points_.begin(), points_.end(),
                                    [&](const Point& p) { return p.end <= no; });
  return later == points_.begin() ? later->at : std::prev(later)->at;
}

// ---- the line

double LineRate::rate(const Point& from, const Point& to) {
  double seconds = std::chrono::duration<double>(to.at - from.at).count();
  return to.bytes <= from.bytes || seconds <= 0 ? 0 : static_cast<double>(to.bytes - from.bytes) / seconds;
}

void LineRate::note(std::uint64_t written, std::optional<std::uint64_t> arrived, Instant now) {
  if (now < due_) return;
  due_ = now + interval_;
  written_.push_back({now, written});
  if (written_.size() > intervals + 1) written_.pop_front();
  auto before = arrived_;
  arrived_ = arrived ? std::optional(Point{now, *arrived}) : std::nullopt;
  if (before && arrived_) best_ = std::max(best_, rate(*before, *arrived_));
}

bool LineRate::carries_the_load() const {
  if (best_ == 0) return true;
  return written_.size() > intervals && rate(written_.front(), written_.back()) <= best_ * 0.75;
}

// ---- buffers

FarBuffers::FarBuffers(const Config& config, const Log& log) : log_(log), times_(config.buffer_interval) {
  for (const PeerConfig& p : config.peers)
    if (p.buffer)
      buffers_.push_back({.of = p.id,
                          .config = *p.buffer,
                          .line = LineRate(config.buffer_interval),
                          .need = log.first(),
                          .has = log.tail_mark()});
}

FarBuffer* FarBuffers::find(ReplicaId id) {
  for (FarBuffer& b : buffers_)
    if (b.of == id) return &b;
  return nullptr;
}

void FarBuffers::note_time(Instant now) {
  if (buffers_.empty()) return;
  times_.note(log_.end(), now);
  RecordNo oldest = log_.end();
  for (const FarBuffer& b : buffers_)
    if (!b.given_up()) oldest = std::min(oldest, b.need);
  times_.drop_before(oldest);
}

void FarBuffers::follows(FarBuffer& b, RecordNo no, Instant now) {
  b.known = true;
  if (!b.given_up() && no <= b.need) return;
  b.given_up_at.reset();
  b.progress_at = now;
  b.need = no;
  b.has = log_.mark_before(no);
}

void FarBuffers::give_up(FarBuffer& b, Instant now) {
  b.given_up_at = now;
  b.full = false;
}

void FarBuffers::on_cut() {
  for (FarBuffer& b : buffers_) {
    if (b.need <= log_.end()) continue;
    b.need = log_.end();
    b.has = log_.last_mark();
  }
}

void FarBuffers::on_reset(Instant now) {
  for (FarBuffer& b : buffers_) give_up(b, now);
}

std::uint64_t FarBuffers::lag_bytes(const FarBuffer& b) const {
  return log_.bytes_behind(std::clamp(b.need, log_.first(), log_.end()));
}

Duration FarBuffers::lag(const FarBuffer& b, Instant now) const {
  auto at = b.need < log_.end() ? times_.before(b.need) : std::nullopt;
  return at ? now - *at : Duration(0);
}

RecordNo FarBuffers::hold() const {
  RecordNo hold = UINT64_MAX;
  for (const FarBuffer& b : buffers_)
    if (!b.given_up()) hold = std::min(hold, b.need);
  return hold;
}

bool FarBuffers::writers_wait() const {
  return std::any_of(buffers_.begin(), buffers_.end(), [&](const FarBuffer& b) {
    return b.config.when_full == BufferConfig::WhenFull::slow_down && at_bound(b);
  });
}

BufferStatus FarBuffers::status(const FarBuffer& b, Instant now) const {
  BufferStatus s;
  s.bound = bound(b);
  s.given_up = b.given_up();
  if (s.given_up) return s;
  s.lag_bytes = lag_bytes(b);
  s.lag_lsns = log_.last_mark().lsn.v - b.has.lsn.v;
  s.lag = lag(b, now);
  s.slows = b.full && b.config.when_full == BufferConfig::WhenFull::slow_down;
  return s;
}

}  // namespace twinloft::repl::core
