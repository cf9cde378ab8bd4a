// The parts of a primary, each alone. The volume has no disk: its writes end when the test says so. The test
// sets the states of the peers.
#pragma once

#include <gtest/gtest.h>

#include "membership.h"
#include "peer.h"
#include "repair.h"
#include "requests.h"
#include "shell.h"
#include "term.h"

namespace twinloft::repl::core {

struct FakeRequests final : Requests {
  bool waits = false;
  std::uint64_t serials = 0;
  bool any_waits() const override { return waits; }
  std::uint64_t serial_without_data() override { return ++serials; }
};

struct PrimaryParts {
  static constexpr std::uint64_t volume_blocks = 1024;

  explicit PrimaryParts(Config config)
      : memory_((arena_blocks_min(config) + 64) * block_size),
        scratch_(read_arena_blocks_min * block_size),
        arena(memory_.span()),
        reads(scratch_.span()),
        volume(config, new_log(1, volume_blocks), arena, reads, random),
        checkpointer(volume),
        repair(volume, checkpointer),
        peers(volume.config),
        term(volume, peers) {
    EXPECT_TRUE(volume.load(new_log(1, volume_blocks)));
    volume.now = Instant{} + std::chrono::seconds(1);
  }

  // Completes all journal and superblock writes successfully.
  void make_durable() {
    auto& out = volume.out;
    while (!out.journal_writes.empty() || !out.superblock_writes.empty()) {
      for (const JournalWrite& w : std::exchange(out.journal_writes, {}))
        volume.on_journal_written(number_of(w.token), 0);
      if (std::exchange(out.superblock_writes, {}).empty()) continue;
      if (volume.on_superblock_written(0) & Volume::for_epoch) volume.log.release_durable();
    }
  }
  Peer& peer(ReplicaId id) { return *peers.find(id); }
  // Connects the peer, with the same log as here.
  Peer::Streaming& stream(ReplicaId id) {
    link_up(id);
    Peer& p = peer(id);
    p.connect(term.epoch());
    p.in<Peer::Matching>()->answer = MatchState{};
    Peer::Streaming& s = p.stream(volume.log.end(), volume.log.last_mark());
    s.received_end = s.sent_end;
    return s;
  }
  void link_up(ReplicaId id) {
    volume.find_link(id)->up = true;
    volume.find_link(id)->state = NodeState{};
  }
  // The peer acknowledges all of the log here.
  void ack(ReplicaId id) {
    Peer& p = peer(id);
    p.streaming()->sent_end = p.streaming()->received_end = p.durable_end = volume.log.end();
  }
  template <class M>
  std::vector<M> sent() {
    std::vector<M> found;
    for (auto& each : volume.out.sends)
      if (auto* send = std::get_if<Send>(&each))
        if (auto* m = std::get_if<M>(&send->message)) found.push_back(*m);
    return found;
  }
  std::size_t notices(NoticeKind kind) const {
    std::size_t n = 0;
    for (const Notice& each : volume.out.notices) n += each.kind == kind;
    return n;
  }

  SeededRandom random{1};

 private:
  journal::AlignedBuffer memory_, scratch_;

 public:
  Arena arena, reads;
  Volume volume;
  Checkpointer checkpointer;
  Repair repair;
  Peers peers;
  Term term;
};

inline Config with_peers(std::initializer_list<ReplicaId> ids) {
  Config c = alone();
  for (ReplicaId id : ids) c.peers.push_back({id, Protocol::C});
  return c;
}

}  // namespace twinloft::repl::core
