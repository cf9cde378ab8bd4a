// Several cores, with the test as network, arbiter and operator.
#pragma once

#include <gtest/gtest.h>

#include "companion.h"
#include "shell.h"

namespace twinloft::repl::core {

using Outcome = ArbiterAnswer::Outcome;

struct RolesTest : testing::Test {
  std::vector<std::unique_ptr<Shell>> nodes;
  std::map<std::pair<ReplicaId, ReplicaId>, bool> up;
  std::vector<std::size_t> delivered;
  std::function<bool(ReplicaId to, const PeerMessage&)> lost;  // lost, while the link is up
  std::vector<std::byte> in = filled(block_size, 1);

  Shell& node(ReplicaId id) { return *nodes[id - 1]; }
  static VolumeStatus status(Shell& s) { return s.core->status(); }
  // The messages of this kind that the replica has sent so far.
  template <class M>
  std::vector<M> said(ReplicaId id) {
    std::vector<M> found;
    for (const PeerMessage& m : node(id).sent)
      if (auto* x = std::get_if<M>(&m)) found.push_back(*x);
    return found;
  }

  Duration ask_peers_for{0};  // 0, as if every start was long ago; see start_test.cc for others
  Duration ask_refused_for{0};
  std::function<void(ReplicaId, Config&)> also = {};  // further settings
  Config config_of(ReplicaId id, std::size_t count) {
    Config c;
    c.ask_refused_for = ask_refused_for;
    c.send_window_bytes = 4u << 20;
    c.ask_peers_for = ask_peers_for;
    for (ReplicaId other = 1; other <= count; ++other)
      if (other != id) c.peers.push_back({other, Protocol::C});
    if (also) also(id, c);
    return c;
  }
  void make(std::size_t count, Arbiter arbiter = Arbiter::manual, OnPeerLoss loss = OnPeerLoss::suspend,
            unsigned min_in_sync = 1) {
    nodes.clear();
    for (ReplicaId id = 1; id <= count; ++id) {
      Config c = config_of(id, count);
      c.arbiter = arbiter;
      c.on_peer_loss = loss;
      c.min_in_sync = min_in_sync;
      nodes.push_back(std::make_unique<Shell>(ShellOptions{.replica = id, .config = c, .seed = id}));
    }
    delivered.assign(count, 0);
    up.clear();
  }
  void connect(ReplicaId a, ReplicaId b) {
    up[{std::min(a, b), std::max(a, b)}] = true;
    node(a).step(PeerUp{b});
    node(b).step(PeerUp{a});
  }
  void disconnect(ReplicaId a, ReplicaId b) {
    up[{std::min(a, b), std::max(a, b)}] = false;
    node(a).step(PeerDown{b});
    node(b).step(PeerDown{a});
  }
  void connect_all() {
    for (ReplicaId a = 1; a <= nodes.size(); ++a)
      for (ReplicaId b = a + 1; b <= nodes.size(); ++b) connect(a, b);
  }
  // Delivers messages and settles until no progress is left, or until the condition is true. Messages on a
  // link that is down are lost. Time passes only for messages that wait for company (companion.h).
  void exchange(const std::function<bool()>& until = [] { return false; }) {
    int waits_left = 16;  // some messages come again and again
    for (bool moved = true; moved;) {
      moved = false;
      for (ReplicaId from = 1; from <= nodes.size(); ++from) {
        while (delivered[from - 1] < node(from).sent.size()) {
          std::size_t i = delivered[from - 1]++;
          ReplicaId to = node(from).sent_to[i];
          moved = true;
          if (lost && lost(to, node(from).sent[i])) continue;
          if (up[{std::min(from, to), std::max(from, to)}]) node(to).input(from, node(from).sent[i]);
          if (until()) return;
        }
        while (node(from).complete_one()) {
          moved = true;
          if (until()) return;
        }
      }
      if (!moved && waits_left-- > 0) moved = wait_for_company();
    }
  }
  // False: nothing is due soon.
  bool wait_for_company() {
    bool due = false;
    for (auto& n : nodes) {
      auto next = n->core->next_tick();
      if (!next || *next > n->now() + Companion::patience) continue;
      n->pass_time(std::max(*next - n->now(), Duration(0)));
      due = true;
    }
    return due;
  }
  // The answer to the command; nullopt: no answer yet.
  std::optional<CommandDone> promote(ReplicaId id, bool force = false) {
    std::size_t before = node(id).commands.size();
    node(id).step(Promote{77, force});
    exchange();
    if (node(id).commands.size() == before) return std::nullopt;
    return node(id).commands.back();
  }
  void expect_not_promoted(ReplicaId id, std::string_view why, bool force = false) {
    auto refused = promote(id, force);
    ASSERT_TRUE(refused && !refused->ok);
    EXPECT_NE(refused->text.find(why), std::string::npos) << refused->text;
  }
  // All replicas are connected, and this one is primary.
  void make_promoted(ReplicaId id, std::size_t count, OnPeerLoss loss = OnPeerLoss::suspend) {
    make(count, Arbiter::manual, loss);
    connect_all();
    exchange();
    ASSERT_TRUE(promote(id)->ok);
  }
  std::uint64_t write_flush(ReplicaId id, std::uint64_t block) {
    node(id).submit(ClientOp::write, block * block_size, block_size, in.data());
    return node(id).submit(ClientOp::flush);
  }
  void fill(ReplicaId id, std::uint64_t from, std::uint64_t to, int value) {
    in = filled(block_size, value);
    for (std::uint64_t b = from; b < to; ++b)
      node(id).submit(ClientOp::write, b * block_size, block_size, in.data());
    node(id).submit(ClientOp::flush);
    exchange();
  }
  // Undelivered messages of the replica are lost.
  void restart(ReplicaId id) {
    node(id).restart();
    delivered[id - 1] = node(id).sent.size();
  }
  void lose_disk(ReplicaId id) {
    std::uint64_t blocks = node(id).data.size() / block_size;
    nodes[id - 1] = std::make_unique<Shell>(ShellOptions{
        .replica = id, .config = config_of(id, nodes.size()), .volume_blocks = blocks, .seed = 99});
    delivered[id - 1] = 0;
  }
  // Damages the record with this content in the replica's journal. The replica starts again without this
  // record and the records after it.
  void rot(ReplicaId id, int content) {
    std::vector<std::byte> block = filled(block_size, content);
    auto found = std::search(node(id).journal.begin(), node(id).journal.end(), block.begin(), block.end());
    ASSERT_NE(found, node(id).journal.end());
    *found ^= std::byte{1};
    restart(id);
    ASSERT_TRUE(status(node(id)).inconsistent);
  }
  // Writes everything home and moves the tail, so that the journal is empty.
  void checkpoint(ReplicaId id) {
    node(id).step(CheckpointNow{});
    exchange();
  }
  // Replica 1 is primary. It has content in its data area and an empty journal.
  void make_filled(std::size_t count) {
    make_promoted(1, count);
    fill(1, 0, 300, 3);
    checkpoint(1);
  }
  // The same on all replicas.
  void make_and_settle(std::size_t count) {
    make_filled(count);
    for (ReplicaId id = 1; id <= count; ++id) checkpoint(id);
  }
  // Starts a resync of replica 2, which already has all the content. This is the state shortly before the end
  // of an earlier resync.
  void begin_needless_resync() {
    disconnect(1, 2);
    lose_disk(2);
    node(2).held = [](Disk kind) { return kind == Disk::superblock; };
    connect(1, 2);
    exchange();
    node(2).data = node(1).data;
    node(2).held = nullptr;
  }
  void answer(ReplicaId id, Outcome outcome, std::optional<EpochValue> current = std::nullopt) {
    ArbiterRequest r = node(id).arbiter_requests.back();
    if (outcome == Outcome::granted && !r.read) current = r.desired;
    node(id).step(ArbiterAnswer{r.token, outcome, current, "no answer"});
    exchange();
  }
};

}  // namespace twinloft::repl::core
