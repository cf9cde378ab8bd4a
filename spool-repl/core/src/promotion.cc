#include "promotion.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {

constexpr Duration claim_time = std::chrono::seconds(10);

std::string set_text(ReplicaSet set) {
  std::string text;
  for (ReplicaId id = 1; id <= replica_id_max; ++id)
    if (set & set_of(id)) text += fmt::format("{}{}", text.empty() ? "" : ", ", id);
  return text.empty() ? "none" : text;
}

}  // namespace

// The newest epoch that is known here or on a connected replica.
EpochEntry Promotion::newest_known() const {
  EpochEntry newest = v_.recorded();
  if (v_.sb.cut_for.epoch.counter > newest.epoch.counter) newest = v_.sb.cut_for;
  for (const Link& l : v_.links)
    if (l.state && l.state->epoch.epoch.counter > newest.epoch.counter) newest = l.state->epoch;
  return newest;
}

// Why this replica cannot be promoted now. Empty: no objection.
std::string Promotion::obstacle() const {
  ReplicaId self = v_.sb.replica;
  if (v_.failed) return fmt::format("replica {} has failed: {}", v_.sb.replica, v_.failure);
  if (v_.disk.damaged() && !accept_loss_)
    return fmt::format(
        "the journal here was damaged: acknowledged writes after LSN {} may be missing. Connect or promote a "
        "replica that has them. If there is none, use --accept-loss",
        v_.log.last_mark().lsn.v);
  if (v_.disk.inconsistent() && !v_.disk.damaged())
    return "this replica is Inconsistent: its resync is not finished. Promote its source, or wait";
  for (const Link& l : v_.links)
    if (l.state && l.state->primary)
      return fmt::format("replica {} is Primary: demote it first", l.config.id);
  if (promised_to_ != 0 && v_.now < promised_until_)
    return fmt::format("replica {} is being promoted", promised_to_);
  if (force_) return "";
  if (std::string why = split_brain(); !why.empty()) return why;
  if (std::string why = made_anew(); !why.empty()) return why;
  if (std::string why = arbiter_changed(); !why.empty()) return why;
  EpochEntry newest = newest_known();
  if (!(newest.in_sync & set_of(self)) && v_.config.arbiter == Arbiter::manual)
    return fmt::format(
        "replica {} is not in sync: epoch {} continued on replica {}, which may have acknowledged writes "
        "that are missing here. Promote such a replica and let this replica catch up, or use --force and "
        "lose those writes",
        self, newest.epoch.counter, set_text(newest.in_sync));
  if (std::string why = stranger_in(newest.in_sync); !why.empty()) return why;
  for (const Link& l : v_.links)
    if (may_hold_more(l))
      return fmt::format(
          "replica {0} holds acknowledged writes up to {1}, this replica only up to {2}: promote replica "
          "{0}, or let this replica catch up",
          l.config.id, l.state->commit.v, v_.log.last_mark().lsn.v);
  if (v_.config.arbiter == Arbiter::external) return "";
  // Without any known epoch, an absent replica may have the volume, even if it does not use protocol C.
  bool first = newest.epoch.counter == 0;
  std::string away;
  for (const Link& l : v_.links)
    if ((first || (newest.in_sync & set_of(l.config.id))) && !l.state)
      away += fmt::format("{}{}{}", away.empty() ? "" : ", ", l.config.id,
                          l.unfit.empty() ? "" : " (" + l.unfit + ")");
  if (!away.empty())
    return fmt::format(
        "Cannot reach replica {}. If it is still primary, forcing causes split brain. Power it off first, "
        "then `promote --force`",
        away);
  return "";
}

// Only the operator can decide which history stays. An external arbiter has already decided: its value
// excludes the other side.
std::string Promotion::split_brain() const {
  if (v_.config.arbiter == Arbiter::external) return "";
  for (const SplitBrain& s : v_.sb.split_brains)
    if (v_.find_link(s.with))
      return fmt::format(
          "split brain: replicas {} and {} each have writes that the other lacks. Decide which history "
          "stays. Promote that replica with --force, and run `discard` on the other replica",
          v_.sb.replica, s.with);
  return "";
}

// With an external arbiter, LSNs are only compared within one history. The arbiter decides between histories.
bool Promotion::may_hold_more(const Link& link) const {
  if (!link.state || link.state->inconsistent || link.state->commit <= v_.log.last_mark().lsn) return false;
  if (v_.config.arbiter == Arbiter::manual) return true;
  return link.state->epochs.holds(v_.recorded().epoch) || v_.sb.epochs.holds(link.state->epoch.epoch);
}

// Two replicas with different arbiters, or one without an arbiter, could both be promoted. After a change of
// the arbiter, the new arbiter may have an older set. The record here may be older than the former arbiter's
// value.
std::string Promotion::arbiter_changed() const {
  for (const Link& l : v_.links)
    if (l.other_arbiter)
      return fmt::format(
          "{}. Both could be promoted. Correct the configuration, or use --force and power replica {} off "
          "first",
          l.unfit, l.config.id);
  if (v_.sb.arbiter == 0 || v_.sb.arbiter == v_.config.arbiter_place) return "";
  ReplicaSet away = 0;
  for (const Link& l : v_.links)
    if (!l.state) away |= set_of(l.config.id);
  if (away == 0) return "";
  return fmt::format(
      "the arbiter has changed since the last promotion: this promotion needs every configured replica. Not "
      "reachable: replica {}. Connect it, remove its [[peer]], or use --force",
      set_text(away));
}

std::string Promotion::stranger_in(ReplicaSet set) const {
  ReplicaSet unknown = set & ~set_of(v_.sb.replica);
  for (const Link& l : v_.links) unknown &= ~set_of(l.config.id);
  if (unknown == 0) return "";
  return fmt::format(
      "the recorded in-sync set has replica {}, which is not in this configuration. Put its [[peer]] back, "
      "or use --force to continue without it for good",
      set_text(unknown));
}

// A replica with a new disk has the id of a member, but no data. Records on other replicas count even if not
// known to be committed: after a restart, a replica may learn the commit point only from this replica.
std::string Promotion::made_anew() const {
  if (const auto* refilling = v_.disk.refilling())
    return fmt::format(
        "replica {0} was recreated and is not complete yet: acknowledged writes up to LSN {1} may be "
        "missing, replica {0} has {2}. Connect or promote the replica that fills it, or use --force and lose "
        "those writes",
        v_.sb.replica, refilling->until.v, v_.log.last_mark().lsn.v);
  // An external arbiter's value names the members, see objection(). It may name this replica alone, before
  // any record was durable here.
  if (v_.log.last_mark().lsn.v > 0 || v_.config.arbiter == Arbiter::external) return "";
  // A record on a replica that is not a member also proves that this replica has lost its data.
  for (const Link& l : v_.links)
    if (l.state && l.state->last.lsn.v > 0)
      return fmt::format(
          "replica {0} is empty, and replica {1} is not: promote replica {1}, or use --force and lose the "
          "data of replica {1}",
          v_.sb.replica, l.config.id);
  return "";
}

void Promotion::ask(std::optional<Token> command, bool force, bool accept_loss) {
  if (phase_ != Phase::idle) {
    if (!command) return;
    v_.out.commands.push_back({*command, false, "a promotion is under way already"});
    return;
  }
  force_ = force || accept_loss;
  accept_loss_ = accept_loss;
  why_not_ = obstacle();
  if (!why_not_.empty()) {
    if (command) v_.out.commands.push_back({*command, false, why_not_});
    return;
  }
  command_ = command;
  attempt_ = Uuid::generate(v_.random);
  deadline_ = v_.now + claim_time;
  phase_ = Phase::claiming;
  waiting_for_.clear();
  for (const Link& l : v_.links) {
    if (!l.up) continue;
    waiting_for_.push_back(l.config.id);
    v_.out.sends.push_back(Send{l.config.id, Claim{attempt_}});
  }
}

// The time until which an unconnected replica may still connect: ask_peers_for after the start, and
// ask_refused_for after a refused connection.
std::optional<Instant> Promotion::looks_for_peers_until() const {
  std::optional<Instant> until;
  for (const Link& l : v_.links) {
    if (l.state || !l.unfit.empty()) continue;
    if (started_) until = std::max(until.value_or(Instant{}), *started_ + v_.config.ask_peers_for);
    if (l.refused) until = std::max(until.value_or(Instant{}), l.since + v_.config.ask_refused_for);
  }
  return until;
}

bool Promotion::looks_for_peers() const {
  auto until = looks_for_peers_until();
  return until && v_.now < *until;
}

void Promotion::peer_up(ReplicaId id) {
  if (phase_ != Phase::claiming) return;
  waiting_for_.push_back(id);
  v_.out.sends.push_back(Send{id, Claim{attempt_}});
}

void Promotion::give_up(const std::string& why) {
  if (phase_ == Phase::idle) return;
  // A node state ends the promise of each replica that granted the claim.
  for (const Link& l : v_.links)
    if (l.up) v_.out.sends.push_back(Send{l.config.id, v_.node_state(false)});
  phase_ = Phase::idle;
  why_not_ = why;
  ask_again_.reset();
  if (command_) v_.out.commands.push_back({*command_, false, why});
  command_.reset();
}

void Promotion::handle(ReplicaId from, const Claim& claim, bool follows) {
  std::string why;
  bool gives_way = phase_ == Phase::idle || (phase_ == Phase::swapping && in_doubt_);
  if (follows)
    why = fmt::format("replica {} follows another primary", v_.sb.replica);
  else if (phase_ == Phase::swapping && !gives_way)
    why = fmt::format("replica {} is asking the arbiter itself", v_.sb.replica);
  else if (!gives_way && v_.sb.replica < from)
    why = fmt::format("replica {} is being promoted itself", v_.sb.replica);
  else if (promised_to_ != 0 && promised_to_ != from && v_.now < promised_until_)
    why = fmt::format("replica {} has agreed to the promotion of replica {}", v_.sb.replica, promised_to_);
  if (why.empty()) {
    give_up(fmt::format("replica {} is being promoted", from));
    promised_to_ = from;
    promised_until_ = v_.now + 2 * claim_time;
  }
  v_.out.sends.push_back(Send{from, v_.node_state(false)});
  v_.out.sends.push_back(Send{from, ClaimReply{claim.attempt, why.empty(), why}});
}

void Promotion::handle(ReplicaId from, const ClaimReply& reply) {
  if (phase_ != Phase::claiming || reply.attempt != attempt_) return;
  if (!reply.granted) return give_up(fmt::format("replica {} does not agree: {}", from, reply.why));
  std::erase(waiting_for_, from);
}

void Promotion::peer_down(ReplicaId id) {
  if (promised_to_ == id) promised_to_ = 0;
  if (phase_ != Phase::claiming || std::erase(waiting_for_, id) == 0) return;
  if (v_.config.arbiter == Arbiter::manual && !force_)
    give_up(fmt::format("the connection to replica {} was lost", id));
}

// The replica has given up its promotion, or has become primary. The promise ends in both cases.
void Promotion::peer_state(ReplicaId id, const NodeState& state) {
  if (promised_to_ == id) promised_to_ = 0;
  if (state.primary && phase_ == Phase::claiming)
    give_up(fmt::format("replica {} is Primary{}", id, command_ ? ": demote it first" : ""));
}

// All connected replicas have granted the claim, and have sent their states.
void Promotion::claimed() {
  TL_CHECK(phase_ == Phase::claiming && waiting_for_.empty());
  std::string why = obstacle();
  if (!why.empty()) return give_up(why);
  EpochEntry newest = newest_known();
  if (v_.config.arbiter == Arbiter::external) {
    phase_ = Phase::reading;
    return ask_arbiter(true);
  }
  ReplicaSet set = force_ ? set_of(v_.sb.replica) : newest.in_sync;
  grant({next_counter(), Uuid::generate(v_.random)}, set);
}

void Promotion::ask_arbiter(bool read) {
  TL_CHECK(v_.config.arbiter == Arbiter::external);
  TL_CHECK(read ? phase_ == Phase::reading : phase_ == Phase::swapping && desired_);
  ask_again_.reset();
  deadline_ = v_.now + claim_time;
  ArbiterRequest request{
      make_token(TokenKind::arbiter, std::uint64_t{1} << 48 | ++arbiter_token_), read, current_, {}};
  if (!read) request.desired = *desired_;
  v_.out.arbiter_requests.push_back(std::move(request));
}

void Promotion::on_arbiter(const ArbiterAnswer& answer) {
  if (number_of(answer.token) != (std::uint64_t{1} << 48 | arbiter_token_)) return;
  using Outcome = ArbiterAnswer::Outcome;
  if (phase_ == Phase::reading) {
    if (answer.outcome == Outcome::unknown) return give_up("the arbiter does not answer: " + answer.why);
    current_ = answer.current;
    // Each epoch in a log was the arbiter's value before. An older value was put back from a copy, or the
    // arbiter was not used for a while. It says nothing about later epochs.
    outdated_ = current_ && current_->epoch.counter < newest_known().epoch.counter;
    ReplicaSet set = current_ && !outdated_ ? current_->in_sync : newest_known().in_sync;
    if (force_)
      set = set_of(v_.sb.replica);
    else if (std::string why = objection(set); !why.empty())
      return give_up(why);
    std::uint64_t counter = std::max(next_counter(), current_ ? current_->epoch.counter + 1 : 1);
    desired_ = EpochValue{
        {counter, Uuid::generate(v_.random)}, v_.sb.replica, set, Uuid::generate(v_.random), forced()};
    TL_CHECK(!current_ || desired_->epoch.counter > current_->epoch.counter);
    phase_ = Phase::swapping;
    in_doubt_ = false;
    return ask_arbiter(false);
  }
  if (phase_ != Phase::swapping) return;
  bool ours = answer.outcome == Outcome::granted ||
              (answer.outcome == Outcome::refused && answer.current == desired_);
  if (ours) return grant(desired_->epoch, desired_->in_sync);
  // An unknown outcome may still be granted later. Only the arbiter's value decides.
  if (answer.outcome == Outcome::unknown || answer.current == current_) {
    in_doubt_ = true;  // without a time limit: claims of other replicas are still granted
    ask_again_ = v_.now + v_.config.arbiter_retry;
    return;
  }
  give_up(answer.current ? fmt::format("replica {} was promoted meanwhile", answer.current->writer)
                         : "the arbiter no longer holds this volume's epoch");
}

// Why the arbiter's value forbids the promotion. Empty: no objection.
std::string Promotion::objection(ReplicaSet set) const {
  ReplicaId self = v_.sb.replica;
  std::uint64_t counter = current_ ? current_->epoch.counter : 0;
  if (!(set & set_of(self)))
    return fmt::format(
        "replica {} is not in the arbiter's in-sync set ({}) of epoch {}: let it catch up, or use --force "
        "and lose the writes that it lacks",
        self, set_text(set), counter);
  // Without a value and any known epoch, an absent replica may have the volume, even without protocol C.
  bool spoken_for = current_ && !outdated_;
  bool first = !current_ && newest_known().epoch.counter == 0;
  ReplicaSet away = set & ~set_of(self), filled = away;
  for (const Link& l : v_.links) {
    if (first) away |= set_of(l.config.id);
    filled |= set_of(l.config.id);  // a former member may have the newest data
  }
  for (const Link& l : v_.links) {
    if (!l.state) continue;
    away &= ~set_of(l.config.id);
    if (l.state->last.lsn == Lsn{0}) filled &= ~set_of(l.config.id);
  }
  if (std::string why = stranger_in(set); !why.empty()) return why;
  // Without a value, only the log here names this set, and others may have continued without this replica.
  if (!spoken_for && away != 0 && current_)
    return fmt::format(
        "the arbiter holds epoch {}, and the newest known epoch is {}: the arbiter was restored from an "
        "older copy, or not used for a while. This promotion needs every recorded member. Not reachable: "
        "replica {}. Connect it, or use --force",
        counter, newest_known().epoch.counter, set_text(away));
  if (!spoken_for && away != 0)
    return fmt::format(
        "the arbiter holds no value yet: the first promotion needs every recorded member. Not reachable: "
        "replica {}. Connect it, or use --force",
        set_text(away));
  // The value names members by id. A replica that was created again has the id but no data. It may be
  // promoted only if no replica has data, which is possible after a first promotion that wrote nothing.
  if (current_ && v_.log.last_mark().lsn == Lsn{0} && filled != 0)
    return fmt::format(
        "replica {} is empty, but the arbiter counts it as in sync in epoch {}: it was recreated. Connect it "
        "and let it resync, or use --force and lose the data of replica {}",
        self, counter, set_text(filled));
  return "";
}

// Whether this command is by force, or the arbiter's value is and its record is not durable here. The
// promoted replica may have died before its record was durable. No replica joins the set before that, so
// changes of the set need not keep the flag.
bool Promotion::forced() const {
  if (force_) return true;
  if (!current_ || !current_->by_force) return false;
  Lsn durable = v_.log.mark_before(v_.log.durable_end()).lsn;
  return std::none_of(v_.sb.epochs.begin(), v_.sb.epochs.end(),
                      [&](const EpochEntry& e) { return e.epoch == current_->epoch && e.start <= durable; });
}

// Whether all members are connected and have lost nothing. Then a record that none of them has was never
// durable on any of them.
bool Promotion::witnessed(ReplicaSet members) const {
  if (!v_.whole()) return false;
  members &= ~set_of(v_.sb.replica);
  for (const Link& l : v_.links)
    if (l.state && l.state->whole) members &= ~set_of(l.config.id);
  return members == 0;
}

// The epoch table up to this epoch, of this replica or of a connected replica.
EpochTable Promotion::chain_of(const EpochEntry& newest) const {
  EpochTable chain;
  if (v_.sb.epochs.holds(newest.epoch)) chain = v_.sb.epochs;
  for (const Link& l : v_.links)
    if (chain.empty() && l.state && l.state->epochs.holds(newest.epoch)) chain = l.state->epochs;
  while (!chain.empty() && chain.back().epoch != newest.epoch) chain.pop_back();
  return chain;
}

Grounds Promotion::grounds_after(const EpochEntry& newest) const {
  bool by_force = v_.config.arbiter == Arbiter::external ? desired_->by_force : force_;
  return grounds_of_promotion({v_.sb.replica, v_.sb.epochs, chain_of(newest), newest, by_force, v_.whole(),
                               witnessed(newest.in_sync)});
}

namespace {

// What this replica lacked by the last report of its primary.
std::string told_of_lag(const BehindReport& r, Instant now) {
  auto seconds = [](Duration d) { return std::chrono::duration<double>(d).count(); };
  if (r.durable >= r.last)
    return fmt::format(". The primary last reported {:.1f} s ago: everything up to LSN {} was here",
                       seconds(now - r.at), r.last.v);
  return fmt::format(
      ". The primary last reported {:.1f} s ago: LSN {} to {} were on their way here. That is {:.1f} MiB "
      "of its journal, written within {:.1f} s",
      seconds(now - r.at), r.durable.v + 1, r.last.v, static_cast<double>(r.bytes) / (1 << 20),
      seconds(r.lag));
}

}  // namespace

// The warning about data that is missing here, or may be missing.
std::string Promotion::told_of_force(const EpochEntry& newest) const {
  ReplicaId self = v_.sb.replica;
  ReplicaSet away = newest.in_sync & ~set_of(self);
  for (const Link& l : v_.links)
    if (l.state) away &= ~set_of(l.config.id);
  if (v_.disk.inconsistent() || v_.disk.refilling())
    return ". DATA IS MISSING HERE: acknowledged writes that this replica had lost were not all restored";
  if (!(newest.in_sync & set_of(self)))
    return fmt::format(
        ". DATA MAY BE MISSING HERE: epoch {0} continued on replica {1}, without this replica. Writes "
        "acknowledged after LSN {2} are not here. Status will show SPLIT BRAIN when replica {1} "
        "reconnects{3}",
        newest.epoch.counter, set_text(newest.in_sync), v_.log.last_mark().lsn.v,
        v_.behind ? told_of_lag(*v_.behind, v_.now) : "");
  if (away == 0) return "";
  return fmt::format(
      ". Promoted without replica {}. This replica was in sync in epoch {}, the newest epoch known here. If "
      "replica {} accepted writes that are not here, status will show SPLIT BRAIN when it reconnects",
      set_text(away), newest.epoch.counter, set_text(away));
}

std::string Promotion::told_of_split_brains() const {
  std::string text;
  for (const SplitBrain& s : v_.sb.split_brains)
    if (v_.find_link(s.with))
      text += fmt::format(
          ". THE SPLIT BRAIN WITH REPLICA {0} IS NOT RESOLVED: its writes after the split are not here. Run "
          "`discard` on replica {0} to discard them",
          s.with);
  return text;
}

void Promotion::grant(const Epoch& epoch, ReplicaSet in_sync) {
  // A granted epoch is newer than the log here, includes this replica, and was requested.
  bool by_arbiter = v_.config.arbiter == Arbiter::external;
  TL_CHECK(phase_ == (by_arbiter ? Phase::swapping : Phase::claiming) && !granted_);
  TL_CHECK(!by_arbiter || (desired_ && desired_->epoch == epoch && desired_->writer == v_.sb.replica));
  TL_CHECK(epoch.counter > v_.recorded().epoch.counter && (in_sync & set_of(v_.sb.replica)) != 0);
  phase_ = Phase::idle;
  why_not_.clear();
  std::string text = fmt::format("replica {} is Primary, epoch {}", v_.sb.replica, epoch.counter);
  EpochEntry newest = newest_known();
  if (force_) text += told_of_force(newest) + told_of_split_brains();
  granted_ = Granted{epoch,    in_sync, by_arbiter ? desired_ : std::nullopt, grounds_after(newest),
                     command_, text};
  command_.reset();
}

void Promotion::advance(bool settled) {
  if (phase_ == Phase::claiming && waiting_for_.empty() && settled && !looks_for_peers()) claimed();
  if (phase_ == Phase::claiming && v_.now >= deadline_)
    give_up(
        waiting_for_.empty()
            ? "pending work of this replica (a tail cut, or a resync) has not finished within 10 s: try again"
            : "not every replica has answered within 10 s");
  if (phase_ == Phase::reading && v_.now >= deadline_) give_up("the arbiter does not answer");
  if (ask_again_ && v_.now >= *ask_again_) ask_arbiter(false);
}

std::optional<Instant> Promotion::next_tick() const {
  if (ask_again_) return ask_again_;
  if (phase_ == Phase::claiming && waiting_for_.empty() && looks_for_peers()) return looks_for_peers_until();
  if (phase_ == Phase::claiming || phase_ == Phase::reading) return deadline_;
  return std::nullopt;
}

}  // namespace twinloft::repl::core
