#include "resync_target.h"

#include <algorithm>
#include <array>
#include <bit>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {
constexpr std::size_t checks_kept_max = 64;  // waiting; a correct source has fewer in flight
}  // namespace

void ResyncTarget::begin(const Source& source) {
  TL_CHECK(std::holds_alternative<Idle>(state_));
  TL_CHECK(v_.disk.inconsistent() && !v_.disk.finishing() && source.replica != 0);
  state_.emplace<Filling>().flow.source = source;
}

void ResyncTarget::drop() {
  if (auto* e = std::get_if<Ending>(&state_))
    e->flow.reset();
  else
    state_ = Idle{};
  if (checking_) checking_->stale = true;
}

ResyncTarget::Filling* ResyncTarget::filling_from(const Epoch& epoch) {
  auto* f = std::get_if<Filling>(&state_);
  return f && f->flow.source.epoch == epoch ? f : nullptr;
}

const ResyncTarget::Flow* ResyncTarget::flow() const {
  if (auto* f = std::get_if<Filling>(&state_)) return &f->flow;
  auto* e = std::get_if<Ending>(&state_);
  return e && e->flow ? &*e->flow : nullptr;
}

ResyncTarget::Progress ResyncTarget::progress() const {
  return flow() ? flow()->progress : Progress{};
}

// ---- content

// Data is taken at once or declined. Data that waited could overwrite content of records that are committed
// in the meantime. Older records that still wait for room do no harm: the last of them has the same content.
std::string ResyncTarget::take(SyncData& m) {
  Filling* f = filling_from(m.epoch);
  if (!f) return "unrequested resync data";
  bool fits = m.seq > f->flow.last && std::all_of(m.extents.begin(), m.extents.end(), [&](const Extent& e) {
                return e.lba.v + e.blocks <= v_.sb.volume_blocks;
              });
  if (!fits) return "resync data out of order, or beyond the volume's end";
  f->flow.last = m.seq;
  if (v_.arena.free() < m.payload.size() / block_size + record_blocks_max) {  // records come first
    checkpointer_.request();
    v_.out.sends.push_back(Send{f->flow.source.replica, SyncAck{m.epoch, m.seq, true}});
    return "";
  }
  std::uint64_t serial = next_serial();
  const std::byte* from = m.payload.data();
  for (const Extent& e : m.extents) {
    for (DirtyMap& d : v_.dirty) d.mark(e.lba, e.blocks);
    if (e.kind == ExtentKind::zeros) {
      v_.committed.put_zeros(e.lba, e.blocks, serial);
      continue;
    }
    for (std::uint32_t i = 0; i < e.blocks; ++i, from += block_size) put(e.lba + i, from, serial);
  }
  f->flow.flying.push_back({m.seq, checkpointer_.next_portion()});
  return "";
}

// A serial above all LSNs, so that no record has it. It is never used twice, since a checkpoint may still be
// writing content of an earlier connection home.
std::uint64_t ResyncTarget::next_serial() {
  if (v_.committed.empty()) v_.committed_since = v_.now;
  return std::uint64_t{1} << 63 | ++serial_;
}

void ResyncTarget::put(Lba lba, const std::byte* block, std::uint64_t serial) {
  Slot slot = v_.arena.take();
  std::memcpy(v_.arena.data(slot), block, block_size);
  v_.committed.put_data(lba, slot, serial);
  v_.arena.unref(slot);
}

// A round of the checkpointer may take longer than the source waits. A repeated acknowledgement then shows
// that the disk makes progress.
std::optional<Instant> ResyncTarget::next_tick() const {
  const Flow* f = flow();
  bool goes_on = f && !v_.failed && f->last > 0 && checkpointer_.steps_done() != told_steps_;
  if (!goes_on) return std::nullopt;
  return told_at_ + v_.config.slow_peer / 4;
}

void ResyncTarget::flush_messages() {
  auto* f = const_cast<Flow*>(flow());
  if (!f || v_.failed) return;
  auto due = next_tick();
  if (f->durable == f->acked && !(due && v_.now >= *due)) return;
  f->acked = f->durable;
  told_at_ = v_.now;
  told_steps_ = checkpointer_.steps_done();
  v_.out.sends.push_back(Send{f->source.replica, SyncAck{f->source.epoch, f->acked}});
}

// ---- checks

std::string ResyncTarget::take(SyncCheck& m) {
  Filling* f = filling_from(m.epoch);
  if (!f) return "unrequested resync checks";
  auto end = m.word * 64 + static_cast<std::uint64_t>(std::bit_width(m.mask));
  if (end > v_.sb.volume_blocks || f->checks.size() >= checks_kept_max)
    return "resync checks beyond the volume's end, or too many of them";
  // An earlier resync may have brought some of these blocks, and its marks may be lost in a crash.
  for (DirtyMap& d : v_.dirty) d.mark(Lba{m.word * 64}, end - m.word * 64);
  f->checks.push_back(std::move(m));
  return "";
}

void ResyncTarget::start_check(Filling& f) {
  if (checking_ || f.checks.empty() || v_.failed) return;
  if (v_.read_arena.free() < 64) return;
  Checking& c = checking_.emplace();
  c.check = std::move(f.checks.front());
  f.checks.pop_front();
  read_check();
}

void ResyncTarget::read_check() {
  Checking& c = *checking_;
  auto first = static_cast<unsigned>(std::countr_zero(c.check.mask)),
       end = static_cast<unsigned>(std::bit_width(c.check.mask));
  c.home_changes = v_.home_changes;
  c.unreadable = 0;
  for (unsigned i = first; i < end; ++i) {
    if (c.slots.size() < end - first) c.slots.push_back(v_.read_arena.take());
    Lba lba{c.check.word * 64 + i};
    bool begin = i == first || c.singly || !v_.home_map.follows(lba);
    if (begin)
      v_.out.home_reads.push_back({make_token(TokenKind::check_read, i), v_.home_map.at(lba), {}}),
          c.outstanding++;
    add_piece(v_.out.home_reads.back().pieces, v_.read_arena.data(c.slots[i - first]), block_size);
  }
}

// The blocks of the check that differ from the source's. An unreadable block differs, and the source's
// content replaces it. An equal block is written again if the disk is not trusted, or if the block does not
// fit its digest here: the digest says that other content was written.
std::uint64_t ResyncTarget::compare() {
  const Checking& c = *checking_;
  auto first = static_cast<unsigned>(std::countr_zero(c.check.mask));
  bool room = v_.arena.free() >= 64 + record_blocks_max;
  std::uint64_t differ = 0, serial = 0;  // serial: of the blocks that are written again
  std::size_t n = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (!(c.check.mask >> bit & 1)) continue;
    Lba lba{c.check.word * 64 + bit};
    auto found = v_.committed.find(lba);
    const std::byte* block = v_.content_of(found);
    bool on_its_way = block != nullptr;
    if (!on_its_way) block = v_.read_arena.data(c.slots[bit - first]);
    bool unreadable = !on_its_way && (c.unreadable >> bit & 1);
    bool equal = hash128({block, block_size}) == c.check.digests[n++] && !unreadable;
    if (unreadable) v_.counters.repaired_blocks++;
    bool again = equal && !on_its_way && (v_.distrusts_disk || !v_.digests.fits(lba, block));
    if (again && serial == 0) serial = next_serial();
    if (!equal || (again && !room))
      differ |= std::uint64_t{1} << bit;
    else if (again)
      put(lba, block, serial);
  }
  if (serial != 0) checkpointer_.request();
  return differ;
}

void ResyncTarget::on_check_read(std::uint64_t bit, int error) {
  TL_CHECK(checking_ && checking_->outstanding > 0);
  Checking& c = *checking_;
  if (error != 0) c.unreadable |= std::uint64_t{1} << bit;
  if (--c.outstanding > 0) return;
  bool which = c.unreadable != 0 && !c.singly;
  c.singly = c.singly || which;
  if (!c.stale && (which || c.home_changes != v_.home_changes)) return read_check();
  if (!c.stale) {
    const Source& source = std::get<Filling>(state_).flow.source;
    v_.out.sends.push_back(Send{source.replica, SyncDiffer{source.epoch, c.check.seq, compare()}});
  }
  for (Slot slot : c.slots) v_.read_arena.unref(slot);
  checking_.reset();
}

// ---- the end

void ResyncTarget::take(const SyncProgress& m) {
  if (Filling* f = filling_from(m.epoch)) f->flow.progress = {std::min(m.done, m.total), m.total};
}

std::string ResyncTarget::take(const SyncEnd& m) {
  Filling* f = filling_from(m.epoch);
  if (!f) return "end of a resync that had not begun";
  Lsn until = m.until;
  // Lost records of a damaged journal were committed. The data area may have parts of them.
  if (const auto* damaged = v_.disk.damaged()) until = std::max(until, damaged->until);
  // Blocks that were found equal may be only in the disk's cache, so a sync is needed.
  checkpointer_.request_sync();
  f->goal = Goal{until, checkpointer_.rounds_begun() + 1};
  return "";
}

void ResyncTarget::advance() {
  auto* f = std::get_if<Filling>(&state_);
  if (!f) return;
  start_check(*f);
  Flow& flow = f->flow;
  for (; !flow.flying.empty() && flow.flying.front().second <= checkpointer_.portions_home();
       flow.flying.pop_front())
    flow.durable = flow.flying.front().first;
  if (!flow.flying.empty()) checkpointer_.request();
  try_end(*f);
}

void ResyncTarget::try_end(Filling& f) {
  if (!f.goal || !f.flow.flying.empty() || v_.commit_lsn() < f.goal->until) return;
  if (checkpointer_.rounds_done() < f.goal->round) return;
  bool answered = f.checks.empty() && (!checking_ || checking_->stale);
  if (!answered) return;  // a correct source sends SyncEnd only after the last answer
  TL_CHECK(v_.disk.inconsistent() && v_.log.committed_end() <= v_.log.durable_end());
  v_.disk.finish();
  Flow flow = std::move(f.flow);
  state_ = Ending{std::move(flow)};
  v_.write_superblock(Volume::for_consistent);
}

void ResyncTarget::on_consistent_durable() {
  if (!ends()) return;  // the write was for an accepted loss, of a primary that is Secondary now
  TL_CHECK(v_.disk.finishing());
  ReplicaId source = flow() ? flow()->source.replica : 0;
  state_ = Idle{};
  v_.disk.finished();
  v_.out.notices.push_back(
      {false, fmt::format("resync is finished: this replica is consistent at {}", v_.commit_lsn().v),
       NoticeKind::resync_finished, source});
}

void ResyncTarget::check_invariants() const {
  TL_CHECK(!fills() || v_.disk.damaged() || v_.disk.syncing());
  TL_CHECK(ends() == v_.disk.finishing());
  if (const Flow* f = flow()) TL_CHECK(f->acked <= f->durable && f->durable <= f->last);
  if (checking_) TL_CHECK(checking_->outstanding > 0 && (checking_->stale || fills()));
}

}  // namespace twinloft::repl::core
