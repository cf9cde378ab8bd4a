// The operator: promotes replicas and swaps roles.
#include <algorithm>

#include "node.h"

namespace twinloft::repl::sim {

bool Cluster::is_cut_off(const Node& n) const {
  return std::none_of(links_.begin(), links_.end(),
                      [&](const Link& l) { return (l.a == n.index || l.b == n.index) && l.up; });
}

// A replica was away for longer than the primary's epoch table reaches back, and the primary was no member
// beside it. It reports split brain although no force was used. docs/operations.md tells the operator to
// discard its side by force.
bool Cluster::forgotten_by(const Node& primary, const Node& n) {
  if (forced_ || by_force_ || &primary == &n || !primary.alive() || !n.alive() || n.command_open ||
      n.is_primary())
    return false;
  auto status = n.core->status();
  bool long_away = status.epoch.counter + epoch_table_max <= primary.core->status().epoch.counter;
  return long_away && std::any_of(status.peers.begin(), status.peers.end(), [&](const core::PeerStatus& s) {
           return s.id == primary.id && s.split_brain;
         });
}

// Promotes if there is no primary. Sometimes makes a request that must be refused, or swaps the roles.
void Cluster::operator_step() {
  if (!operator_runs_) return;
  Node& n = *nodes_[random_.below(nodes_.size())];
  Node* p = primary();
  if (p && forgotten_by(*p, n)) {
    if (!only_here(n).empty())
      violated(
          fmt::format("replica {} has a write that no other replica has, although no force was used", n.id));
    give_up(n, true);
  } else if (n.alive() && !n.command_open && !(by_force_ && random_.below(3) == 0 && overrule(n))) {
    // The operator sees that this machine is unreachable, and does not wait for it.
    bool wanted = !p || !p->alive() || random_.below(6) == 0 || (external_ && is_cut_off(*p));
    if (wanted && (mixed_ || n.protocol == core::Protocol::C) && !n.is_primary()) {
      if (p) coverage_.hit("operator: promotes beside a primary");
      n.command_open = true;
      feed(n, core::Promote{command_promote, false});
    } else if (client_runs_ && n.mount && random_.below(4) == 0) {
      demote_in_order(n);
    }
  }
  schedule(500 + below(8000), [this] { operator_step(); });
}

// The file system is unmounted first, so no request is in flight.
void Cluster::demote_in_order(Node& n) {
  n.mount->paused = true;
  n.command_open = true;
  std::int64_t give_up = now_us_ + 20'000;
  auto ask = std::make_shared<std::function<void()>>();
  *ask = [this, &n, ask, give_up, m = n.mount, life = n.life] {
    if (n.life != life) return;
    bool mounted = n.mount == m;
    if (mounted && m->open > 0 && now_us_ <= give_up) return schedule(200, *ask);
    m->paused = false;
    // The daemon refuses the demotion of a suspended primary.
    if (mounted && m->open == 0 && !n.core->status().suspended) return feed(n, core::Demote{command_demote});
    n.command_open = false;
  };
  schedule(0, *ask);
}

}  // namespace twinloft::repl::sim
