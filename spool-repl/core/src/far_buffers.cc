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

FarBuffers::FarBuffers(const Config& config, const Log& log, const RecordNo& readable_from)
    : can_spill_(config.spill), log_(log), readable_from_(readable_from), times_(config.buffer_interval) {
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

void FarBuffers::follows(FarBuffer& b, RecordNo no, const LogMark& mark, Instant now) {
  if (no > b.need || b.given_up()) {
    // While the journal is full of records that the spill does not take, only those count.
    if (!spill_.holds(no) || journal_fill(b) < 1) b.progress_at = now;
    b.need = no;
    b.has = mark;
  }
  // The spill is not extended to records before it.
  bool before_the_spill = !spill_.empty() && b.need < spill_.first();
  if (eased(b) && reaches(b) && !before_the_spill) b.given_up_at.reset();
}

void FarBuffers::give_up(FarBuffer& b, Instant now) {
  b.given_up_at = now;
  b.full = false;
}

void FarBuffers::on_cut() {
  if (spill_.end() > log_.end()) spill_.clear();
  for (FarBuffer& b : buffers_) {
    if (b.need <= log_.end()) continue;
    b.need = log_.end();
    b.has = log_.last_mark();
  }
}

void FarBuffers::on_reset(Instant now) {
  spill_.clear();
  for (FarBuffer& b : buffers_) give_up(b, now);
}

std::uint64_t FarBuffers::bound(const FarBuffer& b) const {
  return can_spill_ ? b.config.bytes : std::min(b.config.bytes, log_.ring_bytes() / 2);
}

std::uint64_t FarBuffers::pos_before(RecordNo no) const {
  if (no < log_.first() && spill_.holds(no)) return spill_.pos_before(no).v;
  return log_.pos_before(std::clamp(no, log_.first(), log_.end())).v;
}

std::uint64_t FarBuffers::lag_bytes(const FarBuffer& b) const {
  return pos_before(log_.end()) - pos_before(b.need);
}

// The bound is that of the configuration, and the room of the journal for records that are not in the spill.
double FarBuffers::fill(const FarBuffer& b) const {
  double of_bound = static_cast<double>(lag_bytes(b)) / static_cast<double>(b.config.bytes);
  return std::max(of_bound, journal_fill(b));
}

// A spill that is written, but slowly, lets writers wait for room in the journal, unless the policy is that
// they never wait.
double FarBuffers::journal_fill(const FarBuffer& b) const {
  bool spills = can_spill_ && !spill_failing_;
  if (spills && b.config.when_full == BufferConfig::WhenFull::slow_down) return 0;
  std::uint64_t room = spills ? log_.ring_bytes() / 4 * 3 : log_.ring_bytes() / 2;
  RecordNo in_journal = std::clamp(std::max(b.need, spill_.end()), log_.first(), log_.end());
  return static_cast<double>(log_.bytes_behind(in_journal)) / static_cast<double>(room);
}

Duration FarBuffers::lag(const FarBuffer& b, Instant now) const {
  auto at = b.need < log_.end() ? times_.before(b.need) : std::nullopt;
  return at ? now - *at : Duration(0);
}

RecordNo FarBuffers::hold() const {
  RecordNo hold = UINT64_MAX;
  for (const FarBuffer& b : buffers_)
    if (!b.given_up()) hold = std::min(hold, spill_.holds(b.need) ? spill_.end() : b.need);
  return hold;
}

// ---- the spill

bool FarBuffers::keeps_any() const {
  return std::any_of(buffers_.begin(), buffers_.end(), [](const FarBuffer& b) { return !b.given_up(); });
}

RecordNo FarBuffers::oldest_need() const {
  RecordNo need = UINT64_MAX;
  for (const FarBuffer& b : buffers_)
    if (!b.given_up()) need = std::min(need, b.need);
  return need;
}

RecordNo FarBuffers::spill_from() const {
  return spill_.empty() ? oldest_need() : spill_.end();
}

bool FarBuffers::spill_wants(const SpillIndex::Held& held) const {
  if (!keeps_any()) return false;
  if (!spill_.empty()) return held.first == spill_.end();
  return held.first <= oldest_need() && oldest_need() < held.end();
}

bool FarBuffers::load_spill(const std::vector<SpillChunk>& chunks, Instant now) {
  bool fits = (can_spill_ || chunks.empty()) && spill_.load(chunks, log_);
  // Where each replica is will be known once it connects. Until then everything is kept.
  for (FarBuffer& b : buffers_) {
    b.need = spill_.empty() ? log_.first() : spill_.first();
    b.has = spill_.empty() ? log_.tail_mark() : spill_.oldest().before;
    b.progress_at = now;
  }
  return fits;
}

void FarBuffers::drop_unneeded() {
  RecordNo need = oldest_need();
  // Later records may have to be spilled again, and chunks have to follow each other.
  if (need >= spill_.end())
    spill_.clear();
  else
    spill_.drop_before(need);
}

void FarBuffers::lose_spill(RecordNo end, Instant now) {
  for (FarBuffer& b : buffers_)
    if (!b.given_up() && b.need < end && b.need < log_.first()) give_up(b, now);
  spill_.drop_before(end);
}

// ---- for writers and people

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
