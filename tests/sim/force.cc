// An operator who uses force: forced promotions, accepted losses, a discarded side of a split brain. What
// must hold: acknowledged writes are in the winning history, or on a replica that reports split brain.
//
// Promises that only a lost disk, a damaged record or a discarded history had are released.
#include <algorithm>

#include "node.h"

namespace twinloft::repl::sim {

namespace {
constexpr unsigned patience = 40;  // refusals and failed attempts before the operator uses force
constexpr std::int64_t said_lately_us = 30'000;
}  // namespace

// In its present status.
bool Cluster::shows_split(const Node& n) {
  auto peers = n.core->status().peers;
  return std::any_of(peers.begin(), peers.end(), [](const core::PeerStatus& p) { return p.split_brain; });
}

// Returns whether there was something to overrule.
bool Cluster::overrule(Node& n) {
  if (n.is_primary()) {
    if (!n.core->status().suspended || random_.below(2) == 0) return false;
    coverage_.hit("operator: lets a suspended primary continue");
    promote_by_force(n);
  } else if (shows_split(n) && random_.below(3) == 0) {
    give_up(n, random_.below(2) == 0);
  } else if (!primary() || random_.below(4) == 0) {
    promote_by_force(n);
  } else {
    return false;
  }
  return true;
}

void Cluster::promote_by_force(Node& n) {
  forced_ = true;
  bool accept_loss = n.core->status().inconsistent && random_.below(2) == 0;
  note(fmt::format("operator: promotes replica {} by force{}", n.id,
                   accept_loss ? ", and accepts the loss" : ""));
  if (!n.is_primary()) coverage_.hit("operator: promotes by force");
  if (accept_loss) n.loss_accepted = loss_accepted_ = true;
  if (accept_loss)
    n.data.make_right();  // the loss includes the digests, so wrong blocks would not be detected
  n.command_open = true;
  feed(n, core::Promote{command_promote, true, accept_loss});
}

void Cluster::give_up(Node& n, bool force) {
  note(fmt::format("operator: replica {} discards its history{}", n.id, force ? " by force" : ""));
  for (History::State p : only_here(n)) may_go_.insert(p);
  n.gives_up = n.command_open = true;
  feed(n, core::Discard{command_discard, force});
}

void Cluster::on_command(Node& n, const core::CommandDone& done) {
  if (done.token == command_discard) n.gives_up = false;
  if (done.token == command_discard)
    coverage_.hit(done.ok ? "operator: a history is discarded" : "operator: a discard is refused");
  if (done.ok)
    refusals_ = 0;
  else
    refusals_++;
}

// The promises that no other replica holds and keeps.
std::vector<History::State> Cluster::only_here(const Node& n) {
  std::vector<History::State> out;
  std::vector<Found> found;
  for (auto& each : nodes_) found.push_back(after_power_cut(*each));
  for (History::State p : history_.promised()) {
    bool elsewhere = false;
    for (auto& each : nodes_)
      elsewhere = elsewhere ||
                  (each.get() != &n && !each->gives_up && history_.any_holds(found[each->index].states, p));
    if (!elsewhere) out.push_back(p);
  }
  return out;
}

void Cluster::before_loss(const Node& n) {
  if (!by_force_) return;
  for (History::State p : only_here(n)) {
    note(fmt::format("request {} was on replica {} only", p, n.id));
    history_.release(p);
  }
}

// ---- the cluster at rest

bool Cluster::follows(Node& p, const Node& n) const {
  auto status = p.core->status();
  return std::any_of(status.peers.begin(), status.peers.end(), [&](const core::PeerStatus& s) {
    return s.id == n.id && s.connection == core::ConnectionState::Connected && s.durable == status.last &&
           !s.inconsistent && !s.sync_target;
  });
}

// One primary, and all others follow it or report split brain.
bool Cluster::at_rest() {
  Node* only = nullptr;
  for (auto& n : nodes_) {
    if (!n->alive() || n->command_open) return false;
    if (shows_split(*n)) n->split_at = now_us_;
    if (!n->is_primary()) continue;
    if (only) return false;
    only = n.get();
  }
  if (!only || !only->mount) return false;
  auto says = [&](auto& n) { return n.get() != only && says_split(*n); };
  bool split = std::any_of(nodes_.begin(), nodes_.end(), says);
  // The primary may wait for such a replica, and for replicas that are filled meanwhile.
  auto status = only->core->status();
  if (status.suspended && !split) return false;
  auto connected = [&](const Node& n) {
    return std::any_of(status.peers.begin(), status.peers.end(), [&](const core::PeerStatus& s) {
      return s.id == n.id && s.connection == core::ConnectionState::Connected;
    });
  };
  return std::all_of(nodes_.begin(), nodes_.end(), [&](auto& n) {
    return n.get() == only || says(n) || follows(*only, *n) || (status.suspended && connected(*n));
  });
}

bool Cluster::says_split(const Node& n) const {
  return n.split_at >= 0 && now_us_ - n.split_at < said_lately_us;
}

// Makes one replica primary, without force if possible. Of two primaries, one is stopped.
void Cluster::resolve_step() {
  if (!operator_runs_) return;
  schedule(500 + below(4000), [this] { resolve_step(); });
  std::vector<Node*> primaries;
  for (auto& n : nodes_)
    if (n->is_primary()) primaries.push_back(n.get());
  Node& n = primaries.empty() ? *nodes_[random_.below(nodes_.size())]
                              : *primaries[random_.below(primaries.size())];
  if (!n.alive() || n.command_open) return;
  if (primaries.empty()) {
    if (refusals_ > patience) return promote_by_force(n);
    n.command_open = true;
    return feed(n, core::Promote{command_promote, false});
  }
  refusals_++;
  if (refusals_ <= patience) return;
  if (primaries.size() > 1) {
    refusals_ = 0;
    note(fmt::format("operator: stops replica {}, one of two primaries", n.id));
    crash(n, false);
    return start(n);
  }
  if (n.core->status().suspended) promote_by_force(n);
}

void Cluster::resolve() {
  operator_runs_ = false;
  // A primary that waits for other replicas does not step down, so it is stopped.
  for (auto& n : nodes_)
    if (n->alive() && n->command_open && n->is_primary() && n->core->status().suspended)
      crash(*n, false), start(*n);
  run_until(
      [&] { return std::none_of(nodes_.begin(), nodes_.end(), [](auto& n) { return n->command_open; }); },
      60'000'000, "the operator's commands answered");
  bool quiet = false;
  schedule(10'000, [&quiet] { quiet = true; });
  run_until([&] { return quiet; }, 20'000, "time to pass");
  for (bool done = false; !done;) {
    operator_runs_ = true;
    refusals_ = 0;
    resolve_step();
    run_until([&] { return at_rest(); }, 120'000'000,
              "one primary, and all others behind it or in split brain");
    operator_runs_ = false;
    Node& winner = **std::find_if(nodes_.begin(), nodes_.end(), [](auto& n) { return n->is_primary(); });
    check_winner(winner);
    done = give_up_losers(winner);
  }
  operator_runs_ = true;
  operator_step();
}

void Cluster::check_winner(Node& winner) {
  std::vector<Found> found = check_all("at rest");
  const Found& won = found[winner.index];
  auto promises = history_.promised();
  std::vector<bool> at_stake(nodes_.size());
  for (History::State p : promises) {
    if (history_.any_holds(won.states, p)) continue;
    bool told = false;
    for (auto& n : nodes_) {
      if (n.get() == &winner || !says_split(*n) || !history_.any_holds(found[n->index].states, p)) continue;
      at_stake[n->index] = told = true;
    }
    if (!told && !may_go_.contains(p))
      violated(fmt::format(
          "request {} was acknowledged, replica {} lacks it, and no replica with it reports split brain", p,
          winner.id));
    coverage_.hit("split brain: an acknowledged write is with a loser");
    history_.release(p);  // by the operator's decision
  }
  for (auto& n : nodes_)
    if (n.get() != &winner && says_split(*n) && !at_stake[n->index])
      coverage_.hit("split brain: no acknowledged write at stake");
}

// Replicas that do not follow get the command until they do. False: the winner is not primary any more.
bool Cluster::give_up_losers(Node& winner) {
  std::int64_t next = now_us_;
  auto step = [&] {
    if (now_us_ < next) return;
    next = now_us_ + 3000;
    for (auto& n : nodes_) {
      if (n.get() == &winner || !n->alive() || n->command_open || follows(winner, *n)) continue;
      if (shows_split(*n)) give_up(*n, n->refused.find("--force") != std::string::npos);
    }
  };
  run_until(
      [&] {
        if (!winner.is_primary()) return true;
        step();
        return std::all_of(nodes_.begin(), nodes_.end(), [&](auto& n) {
          return n.get() == &winner || (n->alive() && !n->command_open && follows(winner, *n));
        });
      },
      120'000'000, "all losers filled by the winner");
  return winner.is_primary();
}

}  // namespace twinloft::repl::sim
