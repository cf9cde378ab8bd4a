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

// The newest epoch that this node or anybody connected has in its log.
EpochEntry Promotion::newest_known() const {
  EpochEntry newest = v_.recorded();
  if (v_.sb.cut_for.epoch.counter > newest.epoch.counter) newest = v_.sb.cut_for;
  for (const Link& l : v_.links)
    if (l.state && l.state->epoch.epoch.counter > newest.epoch.counter) newest = l.state->epoch;
  return newest;
}

// Why this node cannot be promoted now; empty where nothing speaks against it.
std::string Promotion::obstacle() const {
  ReplicaId self = v_.sb.replica;
  if (v_.failed) return "this node's disk has failed: " + v_.failure;
  if (v_.disk.damaged() && !accept_loss_)
    return fmt::format(
        "the journal here was damaged, and acknowledged writes behind LSN {} may be missing: they come back "
        "from a "
        "replica that has them. Connect one, or promote it. If there is none, use --accept-loss",
        v_.log.last_mark().lsn.v);
  if (v_.disk.inconsistent() && !v_.disk.damaged())
    return "this replica is Inconsistent: a resync into it has not been finished. Promote its source, or "
           "wait";
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
        "replica {} is not in sync: epoch {} went on with {} and may have acknowledged what is missing here. "
        "Promote one of those and let this one catch up, or use --force and lose that",
        self, newest.epoch.counter, set_text(newest.in_sync));
  if (std::string why = stranger_in(newest.in_sync); !why.empty()) return why;
  for (const Link& l : v_.links)
    if (may_hold_more(l))
      return fmt::format(
          "replica {0} holds acknowledged writes up to {1}, this replica only up to {2}: promote replica "
          "{0}, or let "
          "this replica catch up",
          l.config.id, l.state->commit.v, v_.log.last_mark().lsn.v);
  if (v_.config.arbiter == Arbiter::external) return "";
  // No replica here has ever held a record. A replica that is away may hold the volume, also one that is no
  // member by the links here.
  bool first = newest.epoch.counter == 0;
  std::string away;
  for (const Link& l : v_.links)
    if ((first || (newest.in_sync & set_of(l.config.id))) && !l.state)
      away += fmt::format("{}{}{}", away.empty() ? "" : ", ", l.config.id,
                          l.unfit.empty() ? "" : " (" + l.unfit + ")");
  if (!away.empty())
    return fmt::format(
        "Cannot reach replica {}. If it is still primary, forcing causes split brain. Power it off first, "
        "then "
        "`promote --force`",
        away);
  return "";
}

// Whose history is to stay nobody but a person can say. An arbiter has said it: the other side is not in its
// value.
std::string Promotion::split_brain() const {
  if (v_.config.arbiter == Arbiter::external) return "";
  for (const SplitBrain& s : v_.sb.split_brains)
    if (v_.find_link(s.with))
      return fmt::format(
          "split brain: replicas {} and {} both went on, and each holds what the other lacks. Decide whose "
          "history "
          "stays. Promote that replica with --force, and run `discard` on the other",
          v_.sb.replica, s.with);
  return "";
}

// LSNs of two histories are not compared, where an arbiter has said which one counts.
bool Promotion::may_hold_more(const Link& link) const {
  if (!link.state || link.state->inconsistent || link.state->commit <= v_.log.last_mark().lsn) return false;
  if (v_.config.arbiter == Arbiter::manual) return true;
  return link.state->epochs.holds(v_.recorded().epoch) || v_.sb.epochs.holds(link.state->epoch.epoch);
}

// Two that ask two arbiters, or one of them none, may both be promoted. What the new one says of who counts
// may be older than the newest set, and what is recorded here may be older than the value of the last one.
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
      "the arbiter is another one than at the last promotion: the next one needs every configured replica. "
      "Not reachable: "
      "replica {}. Connect it, take its [[peer]] out, or use --force",
      set_text(away));
}

std::string Promotion::stranger_in(ReplicaSet set) const {
  ReplicaSet unknown = set & ~set_of(v_.sb.replica);
  for (const Link& l : v_.links) unknown &= ~set_of(l.config.id);
  if (unknown == 0) return "";
  return fmt::format(
      "the recorded set counts replica {}, which is not in this configuration: it cannot be waited for. Put "
      "its [[peer]] back, or use --force to continue without it for good",
      set_text(unknown));
}

// A replica whose disk was replaced has the id of one that was a member, and nothing else. What others hold
// need not be known as committed: one that was restarted may learn that only from this one.
std::string Promotion::made_anew() const {
  if (const auto* refilling = v_.disk.refilling())
    return fmt::format(
        "replica {} was created anew and has not got back all that it had: acknowledged writes up to LSN {} "
        "may be "
        "missing, it has {}. Connect or promote the replica that fills it, or use --force and lose them",
        v_.sb.replica, refilling->until.v, v_.log.last_mark().lsn.v);
  // An arbiter's value says who counts, see objection(): it may be this one alone, before anything was
  // durable here.
  if (v_.log.last_mark().lsn.v > 0 || v_.config.arbiter == Arbiter::external) return "";
  // Also beside a replica that does not count: what counted was here, and is lost.
  for (const Link& l : v_.links)
    if (l.state && l.state->last.lsn.v > 0)
      return fmt::format(
          "replica {0} is empty, and replica {1} is not: promote replica {1} and let replica {0} be filled, "
          "or use --force "
          "and lose what replica {1} has",
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

// Until when a replica that has not been heard of may still turn up: some time after the start, and after a
// refused connection.
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
  // This ends the promises of those that had granted.
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
    why = "it follows another primary";
  else if (phase_ == Phase::swapping && !gives_way)
    why = fmt::format("replica {} is asking the arbiter itself", v_.sb.replica);
  else if (!gives_way && v_.sb.replica < from)
    why = fmt::format("replica {} is being promoted itself", v_.sb.replica);
  else if (promised_to_ != 0 && promised_to_ != from && v_.now < promised_until_)
    why = fmt::format("it has promised itself to replica {}", promised_to_);
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

// Its promotion came to nothing, or it has become primary: the promise is over either way.
void Promotion::peer_state(ReplicaId id, const NodeState& state) {
  if (promised_to_ == id) promised_to_ = 0;
  if (state.primary && phase_ == Phase::claiming)
    give_up(fmt::format("replica {} is Primary{}", id, command_ ? ": demote it first" : ""));
}

// Everybody here has agreed, and has said what it knows.
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
    // Each epoch in a log was the arbiter's value before. An older value is of another time, or a copy that
    // was put back: it speaks for nothing that has come since.
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
  // An unknown outcome may still turn out as granted: only the arbiter's value ends the doubt.
  if (answer.outcome == Outcome::unknown || answer.current == current_) {
    in_doubt_ = true;  // for as long as it takes: a replica that gets an answer is not held up
    ask_again_ = v_.now + v_.config.arbiter_retry;
    return;
  }
  give_up(answer.current ? fmt::format("replica {} was promoted meanwhile", answer.current->writer)
                         : "the arbiter has forgotten this volume's epoch");
}

// What the arbiter's value says against this replica; empty where that is nothing.
std::string Promotion::objection(ReplicaSet set) const {
  ReplicaId self = v_.sb.replica;
  std::uint64_t counter = current_ ? current_->epoch.counter : 0;
  if (!(set & set_of(self)))
    return fmt::format(
        "replica {} is not in the in-sync set ({}) of epoch {}, says the arbiter: let it catch up, or use "
        "--force "
        "and lose what it lacks",
        self, set_text(set), counter);
  // Where no replica here has ever held a record, one that is away may hold the volume, also one that is no
  // member by the links here.
  bool spoken_for = current_ && !outdated_;
  bool first = !current_ && newest_known().epoch.counter == 0;
  ReplicaSet away = set & ~set_of(self), filled = away;
  for (const Link& l : v_.links) {
    if (first) away |= set_of(l.config.id);
    filled |= set_of(l.config.id);  // also one that is no member any more: it may hold the newest there is
  }
  for (const Link& l : v_.links) {
    if (!l.state) continue;
    away &= ~set_of(l.config.id);
    if (l.state->last.lsn == Lsn{0}) filled &= ~set_of(l.config.id);
  }
  if (std::string why = stranger_in(set); !why.empty()) return why;
  // Without a value nobody has spoken for this set but this replica's own log, which others may have left
  // behind.
  if (!spoken_for && away != 0 && current_)
    return fmt::format(
        "the arbiter holds epoch {}, and epoch {} is recorded here: it was put back from an older copy, or "
        "not used for a "
        "while. A promotion needs every recorded member now: not reachable: replica {}. Connect it, or use "
        "--force",
        counter, newest_known().epoch.counter, set_text(away));
  if (!spoken_for && away != 0)
    return fmt::format(
        "the arbiter holds no value yet, and the first promotion needs every recorded member: not reachable: "
        "replica {}. Connect it, or use --force",
        set_text(away));
  // The value names members by their ids. One that was created anew has the id and nothing else; only where
  // nobody has anything it is as good as any (the first promotion was granted and came to nothing).
  if (current_ && v_.log.last_mark().lsn == Lsn{0} && filled != 0)
    return fmt::format(
        "replica {} is empty, while the arbiter counts it as in sync in epoch {}: it was created anew. "
        "Connect it and "
        "let it resync, or use --force and lose what replica {} has",
        self, counter, set_text(filled));
  return "";
}

// By this command, or by one before that nothing but the arbiter's value tells of: the replica that was
// granted it died before its record was durable. Nobody joins that set before it is, so no change of the set
// has to hand this on.
bool Promotion::forced() const {
  if (force_) return true;
  if (!current_ || !current_->by_force) return false;
  Lsn durable = v_.log.mark_before(v_.log.durable_end()).lsn;
  return std::none_of(v_.sb.epochs.begin(), v_.sb.epochs.end(),
                      [&](const EpochEntry& e) { return e.epoch == current_->epoch && e.start <= durable; });
}

// Whether everybody who counts is here, and has lost nothing: then what none of them has was never durable on
// one of them.
bool Promotion::witnessed(ReplicaSet members) const {
  if (!v_.whole()) return false;
  members &= ~set_of(v_.sb.replica);
  for (const Link& l : v_.links)
    if (l.state && l.state->whole) members &= ~set_of(l.config.id);
  return members == 0;
}

// The table that ends in this epoch: the one here, or that of a replica which has it.
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

// What is known to be missing here, and what may be.
std::string Promotion::told_of_force(const EpochEntry& newest) const {
  ReplicaId self = v_.sb.replica;
  ReplicaSet away = newest.in_sync & ~set_of(self);
  for (const Link& l : v_.links)
    if (l.state) away &= ~set_of(l.config.id);
  if (v_.disk.inconsistent() || v_.disk.refilling())
    return ". DATA IS MISSING HERE: this replica had not got back everything that it had acknowledged";
  if (!(newest.in_sync & set_of(self)))
    return fmt::format(
        ". DATA MAY BE MISSING HERE: epoch {} went on without this replica, on replica {}. What was "
        "acknowledged since LSN {} is not "
        "here. Status will show SPLIT BRAIN when it reconnects",
        newest.epoch.counter, set_text(newest.in_sync), v_.log.last_mark().lsn.v);
  if (away == 0) return "";
  return fmt::format(
      ". Promoted without replica {}. This replica was in sync in epoch {}, the newest one known here. If "
      "replica {} accepted "
      "writes that are not here, status will show SPLIT BRAIN when it reconnects",
      set_text(away), newest.epoch.counter, set_text(away));
}

std::string Promotion::told_of_split_brains() const {
  std::string text;
  for (const SplitBrain& s : v_.sb.split_brains)
    if (v_.find_link(s.with))
      text += fmt::format(
          ". THE SPLIT BRAIN WITH REPLICA {0} IS NOT RESOLVED: what it went on with is not here. Run "
          "`discard` on replica {0} to give that up",
          s.with);
  return text;
}

void Promotion::grant(const Epoch& epoch, ReplicaSet in_sync) {
  // What is granted is newer than the log here, counts this replica, and was asked for.
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
    give_up(waiting_for_.empty() ? "what this replica has under way (a tail that is cut off, or a resync) "
                                   "has not ended within 10 s: try again"
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
