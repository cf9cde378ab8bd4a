// The primary's side of membership: who must have a record before it is acknowledged, and how that set
// changes.
#include <algorithm>
#include <bit>
#include <utility>

#include "primary.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

bool Primary::required(ReplicaId id) const {
  ReplicaSet set = in_sync_ | before_;
  if (set & set_of(id)) return true;
  return std::any_of(peers_.begin(), peers_.end(),
                     [&](const Peer& p) { return p.config.id == id && p.adding; });
}

RecordNo Primary::durable_on(ReplicaSet set) const {
  RecordNo end = v_.log.durable_end();
  for (const Peer& p : peers_)
    if (set & set_of(p.config.id)) end = std::min(end, p.durable_end);
  return end;
}

// Whether it is better to do without it: it comes back as any other that was away.
bool Primary::may_be_closed(const Peer& p) const {
  if (p.connection != ConnectionState::Connected) return false;
  ReplicaSet members = in_sync_ | before_ | (change_ ? change_->desired.in_sync : 0);
  if (!(members & set_of(p.config.id)) || p.filling()) return true;
  // Without it as many are to be left as the administrator wants: else its loss is a suspension, and not the
  // end of one.
  bool enough = static_cast<unsigned>(std::popcount(in_sync_ & ~set_of(p.config.id))) >=
                v_.config.min_in_sync;
  return enough && may_leave_out(p);
}

std::uint64_t Primary::backlog(const Peer& p) const {
  RecordNo has = std::max(p.durable_end, p.begun_at);
  return v_.log.pos_before(v_.log.end()).v -
         v_.log.pos_before(std::clamp(has, v_.log.first(), v_.log.end())).v;
}

// All that is on its way to it is to be durable there within slow_peer. Progress is not enough: a peer that
// makes one record durable now and then holds up the records behind it longer and longer.
void Primary::watch(Peer& p) {
  if (p.connection == ConnectionState::Connected && p.filling()) return watch_filling(p);
  if (p.connection != ConnectionState::Connected || p.durable_end >= v_.log.end()) {
    p.due_end = 0;
    return;
  }
  if (p.due_end != 0 && p.durable_end < p.due_end) return;
  p.due_end = std::max(p.sent_end, p.durable_end + 1);
  p.due_since = v_.now;
}

// Of one that is being filled progress is enough, of whatever kind: it may slow the load down
// (update_tail_limit), and not stop it.
void Primary::watch_filling(Peer& p) {
  bool waits = p.durable_end < p.sent_end;
  std::uint64_t filled = p.durable_end;
  if (p.sync) {
    waits = waits || !p.sync->flying.empty() || !p.sync->checking.empty() || p.sync->declined;
    filled += p.sync->acks + p.sync->checks - p.sync->checking.size();  // and not what it has declined
  }
  if (waits && p.due_end != 0 && p.filled == filled) return;
  p.filled = filled;
  p.due_end = waits ? 1 : 0;
  p.due_since = v_.now;
}

// A peer that is connected and slow holds up acknowledgements (as a member, or as protocol B and A wait for
// it), and the journal. It is closed; what happens then is the same as with one that is away.
void Primary::close_slow() {
  for (Peer& p : peers_) {
    watch(p);
    if (!may_be_closed(p)) continue;
    if (p.due_end != 0 && v_.now - p.due_since >= v_.config.slow_peer) {
      refuse(p, fmt::format("what was sent to it was not durable there within {} s",
                            std::chrono::duration_cast<std::chrono::seconds>(v_.config.slow_peer).count()));
    } else if (!required(p.config.id) && !p.filling() && backlog(p) > v_.log.ring_bytes() / 2) {
      refuse(p, fmt::format("it is {} MiB behind, more than half of the journal, which is not kept for it "
                            "any longer: it gets the rest "
                            "by a resync",
                            backlog(p) >> 20));
    }
  }
}

// Where the administrator prefers errors to waiting. What was completed and can not be acknowledged any more
// makes every later flush fail too, until the device is attached anew.
void Primary::bound_suspension() {
  if (!suspended() || (stalled_writes_.empty() && waiters_.empty())) {
    waiting_since_.reset();
    return;
  }
  if (!waiting_since_) waiting_since_ = v_.now;
  Duration bound = v_.config.suspend_timeout;
  if (bound > Duration(0) && v_.now - *waiting_since_ >= bound)
    v_.fail_device(
        fmt::format("suspended for {} s", std::chrono::duration_cast<std::chrono::seconds>(bound).count()));
}

// A change of the set, or a connection that comes back at once, is no news.
void Primary::tell_suspension() {
  if (!suspended()) {
    suspended_since_.reset();
    if (std::exchange(suspension_told_, false))
      v_.out.notices.push_back(
          {false, "the suspension is over: writes go on", NoticeKind::resumed, 0, epoch_.counter});
    return;
  }
  if (!suspended_since_) suspended_since_ = v_.now;
  if (suspension_told_ || v_.now - *suspended_since_ < suspension_news_after) return;
  suspension_told_ = true;
  v_.out.notices.push_back(
      {true, "suspended: writes wait for " + waits_for(), NoticeKind::suspended, 0, epoch_.counter});
}

std::string Primary::waits_for() const {
  std::string text;
  bool goes_on = v_.config.arbiter == Arbiter::manual && v_.config.on_peer_loss == OnPeerLoss::go_on;
  for (const Peer& p : peers_)
    if (required(p.config.id) && (p.connection != ConnectionState::Connected || p.filling()))
      text += fmt::format("{}replica {}{}", text.empty() ? "" : ", ", p.config.id,
                          !v_.find_link(p.config.id)->unfit.empty() ? " (which is configured otherwise)"
                          : goes_on && !needs_us(p) ? " (which has not confirmed this promotion yet)"
                                                    : "");
  if (text.empty()) return fmt::format("min_in_sync = {}", v_.config.min_in_sync);
  return change_ ? text + ", or the arbiter" : text;
}

// Whether the newest epoch that this one is known to have durably counts this replica, so that it is not
// promoted without it. The one before may be an epoch in which it was alone; with a member like that there is
// no going on without asking a person.
bool Primary::needs_us(const Peer& p) const {
  if (p.durable_end < v_.log.first()) return false;
  return (v_.epoch_at(v_.log.mark_before(p.durable_end).lsn).in_sync & set_of(v_.sb.replica)) != 0;
}

// Without a person's word.
bool Primary::policy_leaves_out(const Peer& p) const {
  if (v_.config.arbiter == Arbiter::external) return true;
  // One that is configured otherwise is not away: nobody knows what it may do by its own settings.
  return v_.config.on_peer_loss == OnPeerLoss::go_on && needs_us(p) &&
         v_.find_link(p.config.id)->unfit.empty();
}

bool Primary::may_leave_out(const Peer& p) const {
  return forced_alone_ || policy_leaves_out(p);
}

// One change at a time. A member that is away may be removed before the epoch that still counts it is durable
// everywhere (everybody counted so far is waited for until the newest epoch is), one is added only after
// that.
void Primary::consider_change() {
  if (epoch_logged_) v_.settle_loss(epoch_end_);
  if (change_) {
    if (change_->ask_again && v_.now >= *change_->ask_again) ask_arbiter();
    return;
  }
  if (!epoch_logged_) return;
  bool durable = durable_on(in_sync_) >= epoch_end_;
  if (durable) before_ = 0;

  if (!suspended()) forced_alone_ = false;  // they are back: the next time is to be asked about anew
  ReplicaSet set = in_sync_;
  bool by_force = false;
  for (const Peer& p : peers_) {
    bool away = p.connection == ConnectionState::Connecting || p.connection == ConnectionState::StandAlone;
    // One that is being filled anew holds nothing that counts, and it is here and knows that: no policy
    // speaks for it.
    bool filled_now = p.connection == ConnectionState::Connected && p.filling();
    if (!(in_sync_ & set_of(p.config.id)) || !((away && may_leave_out(p)) || filled_now)) continue;
    set &= ~set_of(p.config.id);
    by_force = by_force || (away && !policy_leaves_out(p));
  }
  // A replica that is counted alone must hold a record after a power cut: an empty log is that of a new disk,
  // which is not promoted.
  bool empty = v_.log.mark_before(v_.log.durable_end()).lsn == Lsn{};
  if (set != in_sync_ && !empty && static_cast<unsigned>(std::popcount(set)) >= v_.config.min_in_sync) {
    forced_alone_ = false;
    return start_change(set, by_force);
  }

  if (!durable) return;
  for (Peer& p : peers_) {
    if (p.config.protocol != Protocol::C || (in_sync_ & set_of(p.config.id))) continue;
    if (p.connection != ConnectionState::Connected || p.filling()) continue;
    if (!p.adding) {
      // Close enough that writers do not feel it.
      std::uint64_t behind = v_.log.pos_before(v_.log.end()).v -
                             v_.log.pos_before(std::max(p.durable_end, v_.log.first())).v;
      if (behind > v_.config.send_window_bytes / 2) continue;
      p.adding = true;
      p.add_barrier = v_.log.end();
    }
    // With the record of this epoch, which may have begun since: a log that goes on from an epoch which
    // counts neither it nor others then tells those by whom it came.
    if (p.durable_end >= std::max(p.add_barrier, epoch_end_))
      return start_change(in_sync_ | set_of(p.config.id));
  }
}

void Primary::start_change(ReplicaSet set, bool by_force, std::uint64_t after) {
  EpochValue desired{{std::max(epoch_.counter, after) + 1, Uuid::generate(v_.random)},
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

// The same change again after an unknown outcome is harmless: it finds its own attempt, or the value before
// it.
void Primary::ask_arbiter() {
  change_->ask_again.reset();
  doubted_.reset();  // this question answers the doubt too
  v_.out.arbiter_requests.push_back({make_token(TokenKind::arbiter, arbiter_token_ = ++v_.arbiter_questions),
                                     false, value_, change_->desired});
}

// A replica has met a newer primary. No change of the set may be due that would tell: with as few members as
// min_in_sync none leaves.
void Primary::ask_whether_granted(std::uint64_t newer) {
  if (change_ || doubted_ || !epoch_logged_) return;  // asked when that peer connects again
  doubted_ = newer;
  v_.out.arbiter_requests.push_back(
      {make_token(TokenKind::arbiter, arbiter_token_ = ++v_.arbiter_questions), true, value_, {}});
}

void Primary::on_arbiter(const ArbiterAnswer& answer) {
  using Outcome = ArbiterAnswer::Outcome;
  if (lost_ || number_of(answer.token) != arbiter_token_) return;
  if (auto newer = std::exchange(doubted_, std::nullopt)) {
    if (answer.outcome == Outcome::unknown) return;  // asked again when that peer connects again
    if (answer.current != value_) return lose_to(answer);
    // That peer has epochs which this arbiter has not granted: another arbiter's, or of a volume that was
    // adopted. It is to judge by a newer one of ours, which proves nothing to it: the chain is not one.
    return start_change(in_sync_, true, *newer);
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

void Primary::lose_to(const ArbiterAnswer& answer) {
  lose(answer.current ? fmt::format("replica {} is primary since epoch {}, says the arbiter",
                                    answer.current->writer, answer.current->epoch.counter)
                      : "the arbiter has forgotten this volume's epoch");
}

void Primary::apply_change() {
  EpochValue granted = change_->desired;
  change_.reset();
  value_ = granted;
  ReplicaSet joined = granted.in_sync & ~in_sync_, left = in_sync_ & ~granted.in_sync;
  for (Peer& p : peers_) {
    if (joined & set_of(p.config.id)) {
      p.adding = false;
      v_.out.notices.push_back(
          {false, fmt::format("replica {} is in sync, epoch {}", p.config.id, granted.epoch.counter),
           NoticeKind::member_added, p.config.id, granted.epoch.counter});
    }
    if (left & set_of(p.config.id)) {
      v_.note_parting(*v_.find_link(p.config.id));
      v_.out.notices.push_back(
          {true, fmt::format("going on without replica {}, epoch {}", p.config.id, granted.epoch.counter),
           NoticeKind::member_removed, p.config.id, granted.epoch.counter});
    }
  }
  begin_epoch(granted.epoch, granted.in_sync,
              epoch_after(epoch_) | (granted.by_force ? std::uint32_t{epoch_by_force} : 0));
}

bool Primary::go_on_alone() {
  forced_alone_ = suspended();
  return forced_alone_;
}

void Primary::demote() {
  demoting_ = true;
  want_seal_ = true;
}

void Primary::lose(std::string reason) {
  if (lost_) return;
  lost_ = true;
  v_.out.notices.push_back(
      {true,
       fmt::format("no longer primary: {}. What was not yet acknowledged may be missing from "
                   "its history",
                   reason),
       NoticeKind::role, v_.sb.replica, epoch_.counter});
}

bool Primary::may_step_down() const {
  if (!reads_.empty() || !sync_reads_.empty() || !filling_.empty() || !stalled_writes_.empty() ||
      !stalled_reads_.empty())
    return false;
  if (!repairing_.empty()) return false;
  if (lost_) return waiters_.empty();
  return demoting_ && settled() && epoch_logged_ && !change_ && v_.log.committed_end() == v_.log.end();
}

}  // namespace twinloft::repl::core
