#include "primary.h"

#include <algorithm>
#include <utility>

namespace twinloft::repl::core {

// The order matters: each part refers only to parts before it.
Primary::Primary(Volume& volume, Checkpointer& checkpointer, Repair& repair)
    : v_(volume),
      peers_(volume.config),
      term_(volume, peers_),
      room_(volume, peers_),
      resync_(volume, repair, peers_, term_, room_),
      balance_(volume, peers_, term_),
      io_(volume, checkpointer, repair, resync_.pace(), term_, balance_),
      membership_(volume, checkpointer, peers_, term_, io_),
      links_(volume, checkpointer, peers_, term_, membership_, resync_, room_) {}

void Primary::start(const Epoch& epoch, ReplicaSet in_sync, std::optional<EpochValue> value,
                    const Grounds& grounds) {
  membership_.take_office(in_sync, std::move(value));
  links_.update_tail_limit();
  membership_.begin_epoch(epoch, in_sync, grounds);
  for (const Link& l : v_.links)
    if (l.up) links_.peer_up(l.config.id);
}

void Primary::advance() {
  io_.end_overdue_reads();
  room_.update();
  if (v_.failed || term_.lost()) return io_.fail_everything();
  membership_.log_epoch_if_due();
  links_.match_those_that_wait();
  links_.choose_relays();
  links_.close_slow();
  membership_.consider_change();
  membership_.bound_suspension();
  if (v_.failed) return io_.fail_everything();
  io_.retry_stalled();
  if (std::exchange(turn_ends_, false)) io_.seal_if_due();
  if (membership_.demoting()) io_.seal();
  links_.pump();
  advance_acks();
  advance_resyncs();  // after the commit: a resync may wait for it
  membership_.tell_suspension();
  links_.update_tail_limit();
}

bool Primary::end_turn() {
  turn_ends_ = io_.seal_is_due();
  return turn_ends_;
}

void Primary::advance_acks() {
  io_.commit(term_.committable_end());
  if (!term_.suspended()) io_.acknowledge(term_.acked_end());
  io_.answer_flushes();
}

void Primary::advance_resyncs() {
  if (resync_.advance_pace()) resync_.judge(io_.waiting());
  resync_.pump();
}

void Primary::refuse_other(ReplicaId id, std::string reason, bool split_brain) {
  links_.refuse_other(id, std::move(reason), split_brain);
}

void Primary::demote() {
  membership_.demote();
  io_.seal_soon();
}

bool Primary::may_step_down() const {
  if (!io_.nothing_under_way() || !resync_.nothing_under_way()) return false;
  if (term_.lost()) return io_.no_flush_waits();
  return membership_.demoting() && io_.settled() && membership_.settled() &&
         v_.log.committed_end() == v_.log.end();
}

void Primary::on_journal_read(std::uint64_t n, int error, std::vector<std::byte> bytes) {
  links_.on_journal_read(n, error, std::move(bytes));
}

void Primary::on_repaired(const std::vector<Repair::Finished>& finished) {
  for (const Repair::Finished& f : finished)
    if (!io_.on_repaired(f)) resync_.on_repaired(f);
}

void Primary::peer_state(ReplicaId id, const NodeState& state) {
  if (Peer* peer = peers_.find(id)) resync_.peer_state(*peer, state);
}

std::optional<Instant> Primary::next_tick() const {
  std::optional<Instant> next;
  if (v_.failed || term_.lost()) return balance_.next_tick();
  for (auto at : {balance_.next_tick(), io_.next_tick(), membership_.next_tick(), resync_.next_tick(),
                  links_.next_tick()})
    if (at && (!next || *at < *next)) next = at;
  return next;
}

void Primary::fill_status(VolumeStatus& s) const {
  s.epoch = term_.epoch();
  s.in_sync = term_.in_sync();
  s.suspended = term_.suspended();
  s.resync_held_to = resync_.pace().held_to().value_or(0);
  if (s.suspended) s.waits_for = membership_.waits_for();
  s.waiting_requests = io_.waiting_requests() + resync_.waiting_requests();
  links_.fill_status(s, io_.no_room());
  balance_.fill_status(s);
}

}  // namespace twinloft::repl::core
