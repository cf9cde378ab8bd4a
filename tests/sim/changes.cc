// What an administrator changes, or loses, while the cluster runs: the list of peers, the arbiter's data, a
// device that is taken away from its users; and links that come and go so often that the table of epochs does
// not hold them all.
#include "node.h"

namespace twinloft::repl::sim {

// A forced stop: the device goes first, then the process.
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

// A process reads its configuration when it starts.
void Cluster::reconfigure(Node& n, std::set<ReplicaId> without) {
  n.without = std::move(without);
  if (!n.alive()) return;
  crash(n, false);
  start(n);
}

// One replica is taken out of the others' configuration, machine after machine, and put back. Its own names
// all of them throughout. Not a primary, nor from a volume that was never in use: before anything is recorded
// the configuration alone tells who there is.
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

// Its data was put back from a copy, or is gone. All that it has said since then counts no more, so this is
// the administrator's force.
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
  // Often the machine that had served until then is away for a while too, and others come to as many epochs
  // as it had.
  Node* p = primary();
  if (!p || random_.below(3) == 0) return;
  crash(*p, random_.below(2) == 0);
  schedule(20'000 + below(200'000), [this, p, life = p->life] {
    if (p->life == life && !p->alive() && client_runs_) start(*p);
  });
}

// Each time a member goes and comes back, that is two epochs.
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
