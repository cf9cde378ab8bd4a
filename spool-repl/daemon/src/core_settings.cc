#include "core_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "twinloft/base/bytes.h"
#include "twinloft/base/hash.h"
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
    case other:
      return "notice";
    case role:
      return "role";
    case member_removed:
      return "member-removed";
    case member_added:
      return "member-added";
    case connected:
      return "connected";
    case disconnected:
      return "disconnected";
    case refused:
      return "refused";
    case split_brain:
      return "split-brain";
    case resync_begun:
      return "resync-begun";
    case resync_finished:
      return "resync-finished";
    case tail_cut:
      return "tail-cut";
    case discarded:
      return "discarded";
    case suspended:
      return "suspended";
    case resumed:
      return "resumed";
    case failed:
      return "failed";
    case repaired:
      return "repaired";
    case unreadable:
      return "unreadable";
    case buffer_full:
      return "buffer-full";
    case buffer_eased:
      return "buffer-eased";
    case relay:
      return "relay";
  }
  return "notice";
}

namespace {

// The place of the arbiter is a part of its identity: two machines with different arbiters would both be
// promoted.
void add_place(Agreement& all, const arbiter::Settings& a) {
  if (a.kind == arbiter::Kind::manual) return;
  if (a.kind == arbiter::Kind::etcd) {
    std::set<std::string> endpoints;
    for (const std::string& url : a.endpoints) endpoints.insert(arbiter::normal_endpoint(url));
    all.add("arbiter.endpoints", fmt::format("{}", fmt::join(endpoints, " ")));
    all.add("arbiter.prefix", arbiter::normal_prefix(a.prefix));
    return;
  }
  std::string nodes;
  for (const auto& [id, name] : a.nodes) nodes += fmt::format("{}{}={}", nodes.empty() ? "" : " ", id, name);
  all.add("arbiter.nodes", nodes);
}

// Endpoints and nodes of an arbiter may change, so the digest is of its kind and of the name of its data.
std::uint64_t place_of(const arbiter::Settings& a) {
  Agreement place;
  place.add("arbiter.kind", arbiter::name_of(a.kind));
  if (a.kind == arbiter::Kind::etcd) place.add("arbiter.prefix", arbiter::normal_prefix(a.prefix));
  return load_le<std::uint64_t>(hash128(as_bytes(place.text())).bytes.data()) | 1;
}

}  // namespace

core::Config core_config(const VolumeSettings& s) {
  core::Config c;
  c.arbiter = s.arbiter.kind == arbiter::Kind::manual ? core::Arbiter::manual : core::Arbiter::external;
  c.arbiter_place = place_of(s.arbiter);
  c.on_peer_loss = s.on_peer_loss;
  c.min_in_sync = s.min_in_sync;
  c.slow_peer = s.slow_peer;
  c.resync_latency_target = s.resync_latency_target;
  c.resync_rate_min = s.resync_rate_min;
  c.suspend_timeout = s.suspend_timeout;
  c.read_policy = s.read_balancing;
  for (const PeerSettings& p : s.peers) c.peers.push_back({p.id, p.protocol, p.buffer, p.site, p.through});
  c.site = s.site;
  c.seal_after = s.seal_after;
  c.write_ack_durable = s.write_ack_durable;
  c.journal_writes_in_flight = s.journal_writes_in_flight;
  return c;
}

Agreement agreement_with(const VolumeSettings& s, ReplicaId peer) {
  Agreement all = core::agreement_of(core_config(s), arbiter::name_of(s.arbiter.kind), peer);
  add_place(all, s.arbiter);
  return all;
}

}  // namespace twinloft::repl::daemon
