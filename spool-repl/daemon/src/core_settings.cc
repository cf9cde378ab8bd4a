#include "core_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "twinloft/spool-repl/arbiter/arbiter.h"

namespace twinloft::repl::daemon {

ReplicaId last_writer(const RecoveredLog& log) {
  for (auto r = log.records.rbegin(); r != log.records.rend(); ++r)
    if (r->body.header.type == RecordType::epoch) return r->body.epoch_change.writer;
  return log.superblock.epochs.empty() ? 0 : log.superblock.epochs.back().writer;
}

const char* name_of(core::NoticeKind kind) {
  using enum core::NoticeKind;
  switch (kind) {
    case other: return "notice";
    case role: return "role";
    case member_removed: return "member-removed";
    case member_added: return "member-added";
    case connected: return "connected";
    case disconnected: return "disconnected";
    case refused: return "refused";
    case split_brain: return "split-brain";
    case resync_begun: return "resync-begun";
    case resync_finished: return "resync-finished";
    case tail_cut: return "tail-cut";
    case discarded: return "discarded";
    case suspended: return "suspended";
    case resumed: return "resumed";
    case failed: return "failed";
    case repaired: return "repaired";
    case unreadable: return "unreadable";
  }
  return "notice";
}

core::Config core_config(const VolumeSettings& s) {
  core::Config c;
  c.arbiter = s.arbiter.kind == arbiter::Kind::manual ? core::Arbiter::manual : core::Arbiter::external;
  c.on_peer_loss = s.on_peer_loss;
  c.min_in_sync = s.min_in_sync;
  c.slow_peer = s.slow_peer;
  c.resync_latency_target = s.resync_latency_target;
  c.resync_rate_min = s.resync_rate_min;
  c.suspend_timeout = s.suspend_timeout;
  for (const PeerSettings& p : s.peers) c.peers.push_back({p.id, p.protocol});
  c.seal_after = s.seal_after;
  c.write_ack_durable = s.write_ack_durable;
  c.journal_writes_in_flight = s.journal_writes_in_flight;
  return c;
}

// Where the arbiter is belongs to it: two machines with an arbiter each would both be promoted.
Agreement agreement_with(const VolumeSettings& s, ReplicaId peer) {
  Agreement all = core::agreement_of(core_config(s), arbiter::name_of(s.arbiter.kind), peer);
  if (s.arbiter.kind == arbiter::Kind::manual) return all;
  if (s.arbiter.kind == arbiter::Kind::etcd) {
    std::vector<std::string> endpoints = s.arbiter.endpoints;
    std::sort(endpoints.begin(), endpoints.end());
    all.add("arbiter.endpoints", fmt::format("{}", fmt::join(endpoints, " ")));
    all.add("arbiter.prefix", s.arbiter.prefix);
  } else {
    std::string nodes;
    for (const auto& [id, name] : s.arbiter.nodes) nodes += fmt::format("{}{}={}", nodes.empty() ? "" : " ", id, name);
    all.add("arbiter.nodes", nodes);
  }
  return all;
}

}  // namespace twinloft::repl::daemon
