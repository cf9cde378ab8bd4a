// Changes and losses while the cluster runs: the list of peers, the arbiter's data, a device that is taken
// away. Also links that go up and down so often that the epoch table cannot hold all epochs.
#include "node.h"

namespace twinloft::repl::sim {

// A forced stop: the device is detached first, then the process ends.
void Cluster::detach() {
  Node* n = primary();
  if (!n || !n->alive() || !n->is_primary() || n->failed_from || n->fault) return;
  coverage_.hit("fault: the device is taken away");
  note(fmt::format("replica {}: its device is taken away", n->id));
  disturbances_++;
  fail_from_now(*n);
  feed(*n, core::Detach{});
  feed(*n, core::CheckpointNow{});
}

// A process reads its configuration only at its start.
void Cluster::reconfigure(Node& n, std::set<ReplicaId> without) {
  n.without = std::move(without);
  if (!n.alive()) return;
  crash(n, false);
  start(n);
}

// One replica is removed from the other replicas' configurations, one machine after another, and added again.
// Its own configuration always names all replicas. Not for a primary, nor in a new volume: before the first
// record, only the configuration says which replicas exist.
void Cluster::change_peers() {
  for (auto& n : nodes_)
    if (!n->without.empty()) return;
  Node& gone = *nodes_[random_.below(nodes_.size())];
  ReplicaId out = gone.id;
  if (!primary() || history_.promised().empty() || gone.is_primary()) return;
  coverage_.hit("settings: a peer is taken out");
  note(fmt::format("replica {} is taken out of the configuration", out));
  for (auto& n : nodes_) {
    if (n->id == out || random_.below(4) == 0) continue;
    std::int64_t at = below(20'000), back = at + 5000 + below(80'000);
    schedule(at, [this, &n = *n, &gone, out] {
      if (client_runs_ && !gone.is_primary()) reconfigure(n, {out});
    });
    schedule(back, [this, &n = *n] {
      if (!client_runs_ || n.without.empty()) return;
      coverage_.hit("settings: a peer is put back");
      reconfigure(n, {});
    });
  }
}

// The arbiter's data was restored from an old copy, or is lost. Later grants no longer count, so this equals
// an operator's use of force.
void Cluster::roll_back_arbiter() {
  if (!external_ || !by_force_ || arbiter_.before.empty()) return;
  forced_ = true;
  disturbances_++;
  if (random_.below(3) == 0) {
    coverage_.hit("arbiter: wiped");
    arbiter_.value.reset();
  } else {
    coverage_.hit("arbiter: rolled back");
    arbiter_.value = arbiter_.before[random_.below(arbiter_.before.size())];
  }
  note(arbiter_.value
           ? fmt::format("arbiter: rolled back to epoch {} of replica {}, set {:b}",
                         arbiter_.value->epoch.counter, arbiter_.value->writer, arbiter_.value->in_sync)
           : std::string("arbiter: it has forgotten everything"));
  // Often the machine that was primary until then is down for a while too. Other replicas reach the same
  // epoch counters meanwhile.
  Node* p = primary();
  if (!p || random_.below(3) == 0) return;
  crash(*p, random_.below(2) == 0);
  schedule(20'000 + below(200'000), [this, p, life = p->life] {
    if (p->life == life && !p->alive() && client_runs_) start(*p);
  });
}

// Each loss and return of a member takes two epochs.
void Cluster::flap(Link& l, unsigned again) {
  if (!client_runs_) return;
  if (!l.cut) cut(l, 100 + below(1500));
  if (again > 0) schedule(2500 + below(5000), [this, &l, again] { flap(l, again - 1); });
}

void Cluster::flap_some_link() {
  coverage_.hit("fault: a link comes and goes");
  Link& l = primary()
                ? link_of(client_at_, (client_at_ + 1 + random_.below(nodes_.size() - 1)) % nodes_.size())
                : links_[random_.below(links_.size())];
  flap(l, 5 + static_cast<unsigned>(random_.below(20)));
}

}  // namespace twinloft::repl::sim
