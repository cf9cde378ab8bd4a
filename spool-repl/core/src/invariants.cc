// The invariants between two events. The simulator and debug builds check them after each event.
#include <algorithm>

#include "primary.h"
#include "promotion.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

void Volume::check_invariants() const {
  TL_CHECK(log.first() <= home_end && home_end <= log.committed_end());
  TL_CHECK(log.committed_end() <= log.end() && log.durable_end() <= log.end());
  TL_CHECK(log.used_bytes() <= log.ring_bytes());
  TL_CHECK(log.tail_mark().lsn <= log.last_mark().lsn);

  TL_CHECK(sb.epochs.size() <= epoch_table_max);
  auto in_order = [](const EpochEntry& a, const EpochEntry& b) { return a.start < b.start; };
  TL_CHECK(std::is_sorted(sb.epochs.begin(), sb.epochs.end(), in_order));
  for (const repl::SplitBrain& s : sb.split_brains) TL_CHECK(s.with != 0 && s.with != sb.replica);

  disk.check_invariants();
  check_superblock();
  TL_CHECK(superblock_in_flight_ != 0 || superblock_wanted_ == 0);
  TL_CHECK(failed == !failure.empty());
  for (const DirtyMap& d : dirty) TL_CHECK(!d.slot().known || d.slot().peer != 0);
}

// The superblock has the state of the content, or will have it after the write in flight. Only changes of a
// refill, and a higher `until` of a damage, wait for the next superblock write of any purpose.
void Volume::check_superblock() const {
  bool under_way = superblock_in_flight_ != 0;
  DiskState stored = disk.stored();
  auto refills = [](const DiskState& s) {
    return std::holds_alternative<disk_state::Consistent>(s) ||
           std::holds_alternative<disk_state::Refilling>(s);
  };
  bool waits = refills(stored) && refills(sb.disk);
  auto* damaged = std::get_if<disk_state::Damaged>(&stored);
  waits = waits || (damaged && std::holds_alternative<disk_state::Damaged>(sb.disk));
  TL_CHECK(under_way || waits || stored == sb.disk);
  TL_CHECK(under_way || !disk.finishing());
  TL_CHECK(under_way || !disk.source_pending());
  // Committed records are never cut off, and the base of a damaged journal is committed.
  TL_CHECK(!damaged || damaged->base.lsn <= commit_lsn());
}

void Term::check_invariants() const {
  TL_CHECK((in_sync_ & set_of(v_.sb.replica)) != 0);
  // The table has the newest epoch once the epoch's record is in the log.
  TL_CHECK(!logged_ || (!v_.sb.epochs.empty() && v_.sb.epochs.back().epoch == epoch_));
  TL_CHECK(logged_ || v_.log.epoch_before(v_.log.end()) != epoch_);
  TL_CHECK(!logged_ || end_ <= v_.log.end());
}

void Membership::check_invariants() const {
  TL_CHECK(!change_ || change_->desired.epoch.counter > term_.epoch().counter);
  TL_CHECK(!change_ || (change_->desired.in_sync & set_of(v_.sb.replica)) != 0);
  TL_CHECK(!change_ || !doubted_);
  TL_CHECK(!suspension_told_ || suspended_since_);
  for (const Peer& p : peers_)
    TL_CHECK(!p.adding || p.is_streaming() || p.in<Peer::StandAlone>() || changing(p.id()));
}

void ClientIo::check_invariants() const {
  auto by_serial = [](const Waiter& a, const Waiter& b) { return a.serial < b.serial; };
  TL_CHECK(std::is_sorted(waiters_.begin(), waiters_.end(), by_serial));
  TL_CHECK(waiters_.empty() || waiters_.back().serial <= open_serial_);
  TL_CHECK(acked_serial_ < open_serial_);
  for (const auto& [op, read] : reads_) TL_CHECK(read.outstanding > 0 && op < next_op_);
  for (const auto& [op, write] : filling_) TL_CHECK(write.outstanding > 0 && op < next_op_);
}

void ResyncSource::check_invariants() const {
  TL_CHECK(peers_.size() == 0 || turn_ < peers_.size());
  for (const auto& [op, read] : reads_) TL_CHECK(read.outstanding > 0 && peers_.find(read.peer));
  for (const Peer& p : peers_) {
    const Peer::Resync* s = p.resync();
    if (!s) continue;
    // The acknowledgements of an inconsistent peer do not count.
    TL_CHECK(p.incomplete);
    TL_CHECK(s->acked <= s->seq && s->checking.size() <= s->checks);
    TL_CHECK(s->chosen || (s->next == 0 && s->reads == 0));
    std::uint64_t bytes = 0;
    for (const auto& f : s->flying) bytes += f.bytes;
    TL_CHECK(bytes == s->flying_bytes);
    TL_CHECK(!s->end_sent || (s->reads == 0 && s->flying.empty() && s->again.empty()));
  }
}

void PeerLinks::check_invariants() const {
  for (const Peer& p : peers_) {
    TL_CHECK(p.away() || v_.find_link(p.id())->up);
    TL_CHECK(p.durable_end <= v_.log.end() && p.received_end() <= v_.log.end() &&
             p.sent_end() <= v_.log.end());
    if (const auto* m = p.in<Peer::Matching>()) TL_CHECK(m->answer || !m->search);
    if (const auto* o = p.in<Peer::OfferingResync>()) TL_CHECK(o->hold != 0 && p.incomplete);
    const Peer::Streaming* s = p.streaming();
    if (!s) continue;
    TL_CHECK(p.durable_end <= s->received_end && s->received_end <= s->sent_end);
    // A member has every committed record.
    bool counts = (term_.in_sync() & set_of(p.id())) != 0 && !p.filling();
    TL_CHECK(!counts || p.durable_end == 0 || v_.log.committed_end() <= std::max(p.durable_end, s->begun_at));
  }
}

void Primary::check_invariants() const {
  v_.check_invariants();
  // A primary's content is the volume, also after an accepted loss.
  TL_CHECK(!v_.disk.inconsistent() && !v_.disk.refilling());
  TL_CHECK(v_.log.committed_end() <= v_.log.durable_end());
  term_.check_invariants();
  membership_.check_invariants();
  resync_.check_invariants();
  io_.check_invariants();
  balance_.check_invariants();
  links_.check_invariants();
}

void Promotion::check_invariants() const {
  TL_CHECK(!command_ || phase_ != Phase::idle);
  TL_CHECK(phase_ != Phase::swapping || desired_);
  TL_CHECK(!ask_again_ || (phase_ == Phase::swapping && in_doubt_));
  TL_CHECK(promised_to_ != v_.sb.replica);
}

}  // namespace twinloft::repl::core
