// Machines with different settings, for a while, or until all machines have been changed in turn. Also long
// chains of epochs while a replica is away, which then knows none of them.
#include <algorithm>

#include "node.h"

namespace twinloft::repl::sim {

namespace {
constexpr std::uint64_t chain_epochs = epoch_table_max + 2;
constexpr unsigned chain_steps_max = 200;
}  // namespace

// As in the handshake of net/, in words. Empty: the settings agree.
std::string Cluster::disagreement_between(const Node& here, const Node& there) {
  auto agreed = [&](const Node& n, ReplicaId peer) {
    core::Config c = config_of(n);
    return core::agreement_of(c, c.arbiter == core::Arbiter::external ? "external" : "manual", peer).text();
  };
  return disagreement(agreed(here, there.id), agreed(there, here.id));
}

// Returns whether the two refuse the connection. Both then know the reason.
bool Cluster::refuse_unfit(Link& l) {
  if (disagreement_between(*nodes_[l.a], *nodes_[l.b]).empty()) return false;
  coverage_.hit("settings: a connection is refused");
  l.refused_at = now_us_;
  for (std::size_t side : {0, 1}) {
    Node &here = *nodes_[side == 0 ? l.a : l.b], &there = *nodes_[side == 0 ? l.b : l.a];
    tell_down(l, side);
    bool other_arbiter = config_of(here).arbiter != config_of(there).arbiter;
    feed(here, core::PeerUnfit{there.id, disagreement_between(here, there), other_arbiter});
  }
  schedule(1000 + below(4000), [this, &l] { connect(l); });
  return true;
}

// An operator edits one file and restarts that machine. Then either the edit is taken back, or all other
// machines follow.
void Cluster::change_settings() {
  if (nodes_.size() < 2 || settings_change_) return;
  Node& n = *nodes_[random_.below(nodes_.size())];
  std::uint64_t kind = random_.below(4);
  std::function<void(core::Config&)> change;
  if (kind == 0) {
    change = [](core::Config& c) {
      c.on_peer_loss = c.on_peer_loss == core::OnPeerLoss::suspend ? core::OnPeerLoss::go_on
                                                                   : core::OnPeerLoss::suspend;
    };
  } else if (kind == 1) {
    change = [](core::Config& c) {
      c.arbiter = c.arbiter == core::Arbiter::manual ? core::Arbiter::external : core::Arbiter::manual;
      c.arbiter_place = 3 - c.arbiter_place;
      c.on_peer_loss = core::OnPeerLoss::go_on;
    };
  } else if (kind == 2) {
    change = [](core::Config& c) {
      if (c.peers.empty()) return;  // another edit has removed the peers
      auto& p = c.peers.front();
      p.protocol = p.protocol == core::Protocol::A ? core::Protocol::C : core::Protocol::A;
    };
  } else {
    change = [](core::Config& c) { c.min_in_sync = 2; };
  }
  settings_change_ = true;
  set(n, change);
  coverage_.hit("settings: one machine differs");
  bool everywhere = kind == 0 && random_.below(2) == 0;
  if (!everywhere) return schedule(10'000 + below(60'000), [this, &n] { end_settings_change(n); });
  coverage_.hit("settings: changed on one machine after the other");
  std::int64_t at = 0;
  for (auto& other : nodes_) {
    if (other.get() == &n) continue;
    at += 1000 + below(20'000);
    schedule(at, [this, &other = *other, change] {
      if (settings_change_) set(other, change);
    });
  }
  schedule(at + 1, [this] {
    if (!std::exchange(settings_change_, false)) return;
    on_loss_ = on_loss_ == core::OnPeerLoss::suspend ? core::OnPeerLoss::go_on : core::OnPeerLoss::suspend;
    for (auto& each : nodes_) each->settings = nullptr;
  });
}

void Cluster::set(Node& n, std::function<void(core::Config&)> settings) {
  note(fmt::format("replica {}: its settings change, and it is restarted", n.id));
  crash(n, false);
  n.settings = std::move(settings);
  revive_later(n);
}

void Cluster::end_settings_change(Node& n) {
  if (std::exchange(settings_change_, false)) set(n, nullptr);
}

// No machine keeps its own settings. A machine that had its own is down then, and the caller starts it.
void Cluster::settle_settings() {
  settings_change_ = false;
  for (auto& n : nodes_)
    if (std::exchange(n->settings, nullptr)) crash(*n, false);
}

// ---- long chains of epochs

// One machine is down, while another is started and promoted repeatedly. Each promotion is an epoch.
void Cluster::begin_chain() {
  Node& away = *nodes_[random_.below(nodes_.size())];
  Node& n = *nodes_[(away.index + 1 + random_.below(nodes_.size() - 1)) % nodes_.size()];
  // The same conditions as in operator_step. A replica without a link of protocol C would wait for
  // min_in_sync, as it should. If it failed before its first record was durable, the arbiter would name it,
  // and no other replica could be promoted.
  if (!n.alive() || !(mixed_ || n.protocol == core::Protocol::C)) return;
  crash(away, random_.below(2) == 0);
  chain_step(n, away, n.core->status().epoch.counter, chain_steps_max);
}

void Cluster::chain_step(Node& n, Node& away, std::uint64_t from, unsigned left) {
  bool done = left == 0 || !client_runs_;
  if (!done && n.alive() && !n.command_open) {
    if (n.is_primary() && n.core->status().epoch.counter >= from + chain_epochs) {
      coverage_.hit("a long chain of epochs");
      done = true;
    } else if (n.is_primary()) {
      crash(n, false);
      start(n);
    } else if (by_force_ && random_.below(8) == 0) {
      promote_by_force(n);
    } else {
      n.command_open = true;
      feed(n, core::Promote{command_promote, false});
    }
  }
  if (done) return revive_later(away);
  if (away.alive()) crash(away, false);
  schedule(200 + below(2000), [this, &n, &away, from, left] { chain_step(n, away, from, left - 1); });
}

}  // namespace twinloft::repl::sim
