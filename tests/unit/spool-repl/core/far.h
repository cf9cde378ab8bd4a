// Replicas behind buffered links, with the test as network and operator.
#pragma once

#include "far_buffers.h"
#include "roles.h"

namespace twinloft::repl::core {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct FarBuffersTest : RolesTest {
  using WhenFull = BufferConfig::WhenFull;
  static constexpr std::uint64_t mib = 1u << 20;
  std::uint64_t ring = journal_ring_bytes_min;

  // Replica 1 is primary. The last replica is behind buffered links, the others use C.
  void make_far(std::size_t count, std::uint64_t bound = 64 * mib, WhenFull when_full = WhenFull::slow_down,
                bool spill = false) {
    nodes.clear();
    up.clear();
    for (ReplicaId id = 1; id <= count; ++id) {
      Config c = config_of(id, count);
      c.on_peer_loss = OnPeerLoss::go_on;
      c.send_window_bytes = 1u << 20;
      c.spill = spill;
      for (PeerConfig& p : c.peers)
        if (id == count || p.id == count) p = {p.id, Protocol::A, BufferConfig{bound, when_full}};
      nodes.push_back(std::make_unique<Shell>(
          ShellOptions{.replica = id, .config = c, .volume_blocks = 4096, .ring_bytes = ring, .seed = id}));
    }
    delivered.assign(count, 0);
    connect_all();
    exchange();
    ASSERT_TRUE(promote(1)->ok);
  }
  void make_far_with_content(std::size_t count, std::uint64_t bound = 64 * mib,
                             WhenFull when_full = WhenFull::slow_down, bool spill = false) {
    make_far(count, bound, when_full, spill);
    fill(1, 0, 10, 1);
  }
  ReplicaId far() const { return static_cast<ReplicaId>(nodes.size()); }
  void hold_far() {
    node(far()).held = [](Disk kind) { return kind == Disk::journal_write; };
  }
  void release_far() { node(far()).held = nullptr; }
  // Writes, each with its flush. The number of the last flush.
  std::uint64_t write_mib(std::uint64_t count, int value = 7) {
    in = filled(block_size, value);
    std::uint64_t last = 0;
    for (std::uint64_t i = 0; i < count * 256; ++i) {
      node(1).submit(ClientOp::write, i % 2048 * block_size, block_size, in.data());
      if (i % 64 == 63) last = node(1).submit(ClientOp::flush), exchange();
    }
    return last;
  }
  BufferStatus buffer(ReplicaId id) {
    for (const PeerStatus& p : status(node(id)).peers)
      if (p.id == far() && p.buffer) return *p.buffer;
    ADD_FAILURE() << "no buffer";
    return {};
  }
  bool says(ReplicaId id, std::string_view text) {
    return std::any_of(node(id).notices.begin(), node(id).notices.end(),
                       [&](const std::string& n) { return n.find(text) != n.npos; });
  }
  void disconnect_far() {
    for (ReplicaId id = 1; id < far(); ++id) disconnect(id, far());
  }
  void connect_far() {
    for (ReplicaId id = 1; id < far(); ++id) connect(id, far());
  }
  void expect_equal() {
    exchange();
    for (ReplicaId id = 1; id <= far(); ++id) checkpoint(id);
    for (ReplicaId id = 2; id <= far(); ++id) EXPECT_TRUE(node(1).data == node(id).data) << id;
  }
};

}  // namespace twinloft::repl::core
