// Replicas that need a resync: one with a new disk, and one that was away for longer than the journal reaches
// back.
#pragma once

#include "roles.h"

namespace twinloft::repl::core {

struct ResyncTest : RolesTest {
  void make_pair() { make_filled(2); }
  void expect_equal() {
    for (ReplicaId id = 1; id <= nodes.size(); ++id) checkpoint(id);
    for (ReplicaId id = 2; id <= nodes.size(); ++id)
      EXPECT_EQ(node(id).data, node(1).data) << "replica " << id;
    for (ReplicaId id = 1; id <= nodes.size(); ++id) EXPECT_FALSE(status(node(id)).inconsistent);
  }
};

struct BitmapTest : ResyncTest {
  // Replica 2, or the replicas `left`, have been away for longer than the journal reaches back.
  void leave_behind(std::size_t count, bool uncommitted = false, std::set<ReplicaId> left = {2}) {
    make_promoted(1, count, OnPeerLoss::go_on);
    fill(1, 0, 300, 3);
    for (ReplicaId id = 1; id <= count; ++id) checkpoint(id);
    if (uncommitted) fill(1, 0, 1, 4);  // replica 2 gets the commit, but no record that contains it
    for (ReplicaId id : left)
      for (ReplicaId other = 1; other <= count; ++other)
        if (other != id && up[{std::min(id, other), std::max(id, other)}]) disconnect(id, other);
    exchange();
    // More than the ring holds, so that the records are overwritten.
    for (int round = 0; round < 12; ++round) {
      fill(1, 400, 450, 10 + round);
      for (int i = 0; i < 6; ++i) fill(1, 500, 528, 40 + i);
      for (ReplicaId id = 1; id <= count; ++id)
        if (!left.contains(id)) checkpoint(id);
    }
  }
  std::size_t blocks_sent(ReplicaId id, std::size_t from) {
    std::size_t n = 0;
    for (std::size_t i = from; i < node(id).sent.size(); ++i)
      if (auto* m = std::get_if<SyncData>(&node(id).sent[i]))
        for (const Extent& e : m->extents) n += e.blocks;
    return n;
  }
  template <class M>
  std::size_t messages(ReplicaId id, std::size_t from) {
    std::size_t n = 0;
    for (std::size_t i = from; i < node(id).sent.size(); ++i)
      n += std::holds_alternative<M>(node(id).sent[i]);
    return n;
  }
};

}  // namespace twinloft::repl::core
