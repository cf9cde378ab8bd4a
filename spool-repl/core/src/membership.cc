#include "membership.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

void Membership::take_office(ReplicaSet in_sync, std::optional<EpochValue> value) {
  TL_CHECK(term_.epoch() == Epoch{} && (in_sync & set_of(v_.sb.replica)) != 0);
  TL_CHECK(!value || (value->in_sync == in_sync && value->writer == v_.sb.replica));
  value_ = std::move(value);
  promoted_at_ = v_.log.end();
  first_ever_ = v_.log.last_mark().lsn == Lsn{0};
  for (const Link& l : v_.links)
    if (!(in_sync & set_of(l.config.id))) v_.note_parting(l);
}

void Membership::begin_epoch(const Epoch& epoch, ReplicaSet in_sync, const Grounds& grounds) {
  TL_CHECK(!change_ && epoch.counter > v_.recorded().epoch.counter);
  term_.begin(epoch, in_sync, grounds);
  log_epoch();
}

bool Membership::begin_epoch_behind(std::uint64_t counter) {
  if (v_.config.arbiter != Arbiter::manual || change_ || term_.lost()) return false;
  std::uint32_t kept = term_.logged() ? 0 : term_.flags() & (epoch_by_force | epoch_lossy);
  begin_epoch({counter + 1, Uuid::generate(v_.random)}, term_.in_sync(), {kept, mark_of(term_.epoch())});
  return true;
}

void Membership::log_epoch_if_due() {
  if (!term_.logged()) log_epoch();
}

// While the ring is full, advance() calls this again. The checkpointer makes room.
void Membership::log_epoch() {
  Body body;
  body.header = {RecordType::epoch,
                 v_.sb.volume,
                 term_.epoch(),
                 v_.log.last_mark().lsn + 1,
                 1,
                 v_.log.last_mark().hash,
                 hash_payload({}),
                 0};
  body.epoch_change = {term_.epoch(), v_.sb.replica, term_.in_sync(), term_.flags(), term_.granted_after()};
  std::vector<std::byte> meta;
  encode_body_meta(body, meta);
  auto pos = v_.log.place(meta_blocks_for(meta.size()));
  if (!pos || v_.arena.free() < record_meta_blocks_max) {
    checkpointer_.request();
    return;
  }
  v_.sb.epochs.note(entry_of(body.epoch_change, body.header.first_lsn));
  RecordNo no = v_.journal_record(body, meta, {}, *pos, requests_.serial_without_data());
  term_.note_logged(no + 1);
}

// A member that was created again may have acknowledged everything that was in the log here at the promotion.
// After a restart, this primary does not know how much of that is committed.
Lsn Membership::held_by(const Peer& peer, Lsn peer_last) const {
  if (!term_.required(peer)) return {};
  RecordNo end = v_.log.committed_end();
  if (peer_last.v == 0) end = std::max(end, promoted_at_);
  return v_.log.mark_before(end).lsn;
}

bool Membership::lossy_behind(RecordNo end) const {
  if (!term_.logged() && (term_.flags() & epoch_lossy)) return true;
  for (RecordNo no = std::max(end, v_.log.first()); no < v_.log.end(); ++no) {
    const LogRecord& r = v_.log.at(no);
    if (r.type == RecordType::epoch && (r.epoch_change.flags & epoch_lossy)) return true;
  }
  return false;
}

// Whether the primary may continue without the peer. The peer can reconnect later.
bool Membership::may_be_closed(const Peer& p) const {
  if (!p.is_streaming()) return false;
  ReplicaSet members = term_.counted() | (change_ ? change_->desired.in_sync : 0);
  if (!(members & set_of(p.id())) || p.filling()) return true;
  // min_in_sync members must remain. Otherwise closing the connection would cause a suspension.
  bool enough = static_cast<unsigned>(std::popcount(term_.in_sync() & ~set_of(p.id()))) >=
                v_.config.min_in_sync;
  return enough && may_leave_out(p);
}

// With a suspend_timeout, requests fail instead of waiting longer. Completed writes may then be lost, so
// every later flush fails too, until the device is attached again.
void Membership::bound_suspension() {
  if (!term_.suspended() || !requests_.any_waits()) {
    waiting_since_.reset();
    return;
  }
  if (!waiting_since_) waiting_since_ = v_.now;
  Duration bound = v_.config.suspend_timeout;
  if (bound > Duration(0) && v_.now - *waiting_since_ >= bound)
    v_.fail_device(
        fmt::format("suspended for {} s", std::chrono::duration_cast<std::chrono::seconds>(bound).count()));
}

// A short suspension is not reported: a change of the set, or a peer that reconnects at once, causes one.
void Membership::tell_suspension() {
  if (!term_.suspended()) {
    suspended_since_.reset();
    if (std::exchange(suspension_told_, false))
      v_.out.notices.push_back(
          {false, "the suspension is over: writes continue", NoticeKind::resumed, 0, term_.epoch().counter});
    return;
  }
  if (!suspended_since_) suspended_since_ = v_.now;
  if (suspension_told_ || v_.now - *suspended_since_ < suspension_news_after) return;
  suspension_told_ = true;
  v_.out.notices.push_back(
      {true, "suspended: writes wait for " + waits_for(), NoticeKind::suspended, 0, term_.epoch().counter});
}

std::string Membership::waits_for() const {
  std::string text;
  bool goes_on = v_.config.arbiter == Arbiter::manual && v_.config.on_peer_loss == OnPeerLoss::go_on;
  for (const Peer& p : peers_)
    if (term_.required(p) && (!p.is_streaming() || p.filling()))
      text += fmt::format("{}replica {}{}", text.empty() ? "" : ", ", p.id(),
                          !v_.find_link(p.id())->unfit.empty() ? " (which is configured differently)"
                          : goes_on && !needs_us(p) ? " (which has not confirmed this promotion yet)"
                                                    : "");
  if (text.empty()) return fmt::format("min_in_sync = {}", v_.config.min_in_sync);
  return change_ ? text + ", or the arbiter" : text;
}

// Whether the newest epoch that is known to be durable on the peer has this replica as a member. Then the
// peer is not promoted without this replica. In an earlier epoch the peer may have been alone, and then only
// the operator may decide to continue without it.
bool Membership::needs_us(const Peer& p) const {
  if (p.durable_end < v_.log.first()) return false;
  return (v_.epoch_at(v_.log.mark_before(p.durable_end).lsn).in_sync & set_of(v_.sb.replica)) != 0;
}

// Whether the configuration lets the primary continue without the peer, without the operator.
bool Membership::policy_leaves_out(const Peer& p) const {
  if (v_.config.arbiter == Arbiter::external) return true;
  // An unfit peer is running with other settings, which may let it become primary.
  return v_.config.on_peer_loss == OnPeerLoss::go_on && needs_us(p) && v_.find_link(p.id())->unfit.empty();
}

bool Membership::may_leave_out(const Peer& p) const {
  return forced_alone_ || policy_leaves_out(p);
}

// One change at a time. An absent member may be removed before the present epoch is durable on all members.
// A member is added only after that.
void Membership::consider_change() {
  if (term_.logged()) v_.settle_loss(term_.end());
  if (change_) {
    if (change_->ask_again && v_.now >= *change_->ask_again) ask_arbiter();
    return;
  }
  if (!term_.logged()) return;
  bool durable = term_.durable_on(term_.in_sync()) >= term_.end();
  if (durable) term_.settle();
  if (!term_.suspended()) forced_alone_ = false;  // the members are back: a later loss needs a new command
  if (!leave_out_those_away() && durable) add_those_that_caught_up();
}

// True: a change has begun.
bool Membership::leave_out_those_away() {
  ReplicaSet set = term_.in_sync();
  bool by_force = false;
  for (const Peer& p : peers_) {
    bool away = p.away();
    // A peer that is being filled does not have the data, and knows that it is connected. No policy applies.
    bool filled_now = p.is_streaming() && p.filling();
    if (!(term_.in_sync() & set_of(p.id())) || !((away && may_leave_out(p)) || filled_now)) continue;
    set &= ~set_of(p.id());
    by_force = by_force || (away && !policy_leaves_out(p));
  }
  // A sole member must have a durable record. After a power cut, an empty log would look like a new disk, and
  // the replica could not be promoted.
  bool empty = v_.log.mark_before(v_.log.durable_end()).lsn == Lsn{};
  bool enough = static_cast<unsigned>(std::popcount(set)) >= v_.config.min_in_sync;
  if (set == term_.in_sync() || empty || !enough) return false;
  forced_alone_ = false;
  start_change(set, by_force);
  return true;
}

void Membership::add_those_that_caught_up() {
  for (Peer& p : peers_) {
    if (p.config.protocol != Protocol::C || (term_.in_sync() & set_of(p.id()))) continue;
    if (!p.is_streaming() || p.filling()) continue;
    if (!p.adding) {
      // The peer is added only when it is close, so that writes do not wait long for it.
      std::uint64_t behind = v_.log.pos_before(v_.log.end()).v -
                             v_.log.pos_before(std::max(p.durable_end, v_.log.first())).v;
      if (behind > v_.config.send_window_bytes / 2) continue;
      p.adding = true;
      p.add_barrier = v_.log.end();
    }
    // The peer also needs the record of this epoch, which may have begun since. Without the record, its log
    // could continue from an epoch that excludes it, and would not name the writer.
    if (p.durable_end >= std::max(p.add_barrier, term_.end()))
      return start_change(term_.in_sync() | set_of(p.id()));
  }
}

void Membership::start_change(ReplicaSet set, bool by_force, std::uint64_t after) {
  TL_CHECK(settled() && !term_.lost());
  TL_CHECK((set & set_of(v_.sb.replica)) != 0);
  EpochValue desired{{std::max(term_.epoch().counter, after) + 1, Uuid::generate(v_.random)},
                     v_.sb.replica,
                     set,
                     Uuid::generate(v_.random),
                     by_force};
  change_ = Change{desired, std::nullopt};
  if (v_.config.arbiter == Arbiter::manual)
    apply_change();
  else
    ask_arbiter();
}

// After an unknown outcome, the same request is safe: the arbiter then has the old value or this change.
void Membership::ask_arbiter() {
  TL_CHECK(change_ && v_.config.arbiter == Arbiter::external);
  change_->ask_again.reset();
  doubted_.reset();  // this question answers the doubt too
  v_.out.arbiter_requests.push_back({make_token(TokenKind::arbiter, arbiter_token_ = ++v_.arbiter_questions),
                                     false, value_, change_->desired});
}

void Membership::ask_whether_granted(std::uint64_t newer) {
  if (change_ || doubted_ || !term_.logged()) return;  // asked when that peer connects again
  doubted_ = newer;
  v_.out.arbiter_requests.push_back(
      {make_token(TokenKind::arbiter, arbiter_token_ = ++v_.arbiter_questions), true, value_, {}});
}

void Membership::on_arbiter(const ArbiterAnswer& answer) {
  using Outcome = ArbiterAnswer::Outcome;
  if (term_.lost() || number_of(answer.token) != arbiter_token_) return;
  if (auto newer = std::exchange(doubted_, std::nullopt)) {
    if (answer.outcome == Outcome::unknown) return;  // asked again when that peer connects again
    if (answer.current != value_) return lose_to(answer);
    // The peer has epochs that this arbiter has not granted, of another arbiter or of an adopted volume. A
    // newer epoch begins here, so that the peer can judge it. The epoch is by force, as the chain is broken.
    return start_change(term_.in_sync(), true, *newer);
  }
  if (!change_) return;
  if (answer.outcome == Outcome::granted ||
      (answer.outcome == Outcome::refused && answer.current == change_->desired))
    return apply_change();
  if (answer.outcome == Outcome::unknown || answer.current == value_) {
    change_->ask_again = v_.now + v_.config.arbiter_retry;
    return;
  }
  lose_to(answer);
}

void Membership::lose_to(const ArbiterAnswer& answer) {
  lose(answer.current ? fmt::format("the arbiter names replica {} as primary since epoch {}",
                                    answer.current->writer, answer.current->epoch.counter)
                      : "the arbiter no longer holds this volume's epoch");
}

void Membership::apply_change() {
  TL_CHECK(change_ && !term_.lost());
  EpochValue granted = change_->desired;
  TL_CHECK(granted.epoch.counter > term_.epoch().counter && granted.writer == v_.sb.replica);
  change_.reset();
  value_ = granted;
  ReplicaSet joined = granted.in_sync & ~term_.in_sync(), left = term_.in_sync() & ~granted.in_sync;
  for (Peer& p : peers_) {
    if (joined & set_of(p.id())) {
      TL_CHECK(p.adding && p.config.protocol == Protocol::C);
      p.adding = false;
      v_.out.notices.push_back({false,
                                fmt::format("replica {} is in sync, epoch {}", p.id(), granted.epoch.counter),
                                NoticeKind::member_added, p.id(), granted.epoch.counter});
    }
    if (left & set_of(p.id())) {
      v_.note_parting(*v_.find_link(p.id()));
      v_.out.notices.push_back(
          {true, fmt::format("continuing without replica {}, epoch {}", p.id(), granted.epoch.counter),
           NoticeKind::member_removed, p.id(), granted.epoch.counter});
    }
  }
  begin_epoch(granted.epoch, granted.in_sync,
              {granted.by_force ? std::uint32_t{epoch_by_force} : 0, mark_of(term_.epoch())});
  // The former members stay required until this epoch's record is durable on the new members.
  TL_CHECK(term_.in_sync() == granted.in_sync && (term_.counted() & (joined | left)) == (joined | left));
}

bool Membership::go_on_alone() {
  forced_alone_ = term_.suspended();
  return forced_alone_;
}

void Membership::lose(std::string reason) {
  if (term_.lost()) return;
  term_.lose();
  v_.out.notices.push_back(
      {true, fmt::format("no longer primary: {}. Writes that were not yet acknowledged may be lost", reason),
       NoticeKind::role, v_.sb.replica, term_.epoch().counter});
}

std::optional<Instant> Membership::next_tick() const {
  std::optional<Instant> next;
  auto consider = [&](Instant at) { next = std::min(next.value_or(at), at); };
  if (change_ && change_->ask_again) consider(*change_->ask_again);
  if (suspended_since_ && !suspension_told_) consider(*suspended_since_ + suspension_news_after);
  if (waiting_since_ && v_.config.suspend_timeout > Duration(0))
    consider(*waiting_since_ + v_.config.suspend_timeout);
  return next;
}

}  // namespace twinloft::repl::core
