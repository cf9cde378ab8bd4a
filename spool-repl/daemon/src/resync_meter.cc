#include "resync_meter.h"

#include <algorithm>

namespace twinloft::repl::daemon {

namespace {

// The size of the volume is used until the source has reported the amount.
std::uint64_t total_blocks(const core::PeerStatus& p, std::uint64_t volume_blocks) {
  return p.sync_target || p.sync_total_blocks != 0 ? p.sync_total_blocks : volume_blocks;
}

bool under_way(const core::PeerStatus& p) {
  return p.sync_source || p.sync_target;
}

}  // namespace

bool ResyncMeter::sample(const core::VolumeStatus& status, std::uint64_t volume_blocks, Instant now) {
  for (const core::PeerStatus& p : status.peers) {
    if (!under_way(p)) {
      tracks_.erase(p.id);
      continue;
    }
    Track& t = tracks_[p.id];
    if (!t.samples.empty() && p.synced_blocks < t.samples.back().done_blocks)
      t = {};  // the resync has begun again
    t.samples.push_back({now, p.synced_blocks});
    while (t.samples.size() > 2 && now - t.samples[1].at >= window) t.samples.pop_front();
    std::uint64_t total = total_blocks(p, volume_blocks);
    t.tenth = total == 0 ? 0
                         : static_cast<unsigned>(std::min<std::uint64_t>(p.synced_blocks * 10 / total, 9));
  }
  return !tracks_.empty();
}

std::optional<ResyncProgress> ResyncMeter::of(const core::PeerStatus& p, std::uint64_t volume_blocks) const {
  if (!under_way(p)) return std::nullopt;
  ResyncProgress out;
  out.total_bytes = total_blocks(p, volume_blocks) * block_size;
  out.done_bytes = std::min(p.synced_blocks * block_size, out.total_bytes);
  auto found = tracks_.find(p.id);
  if (found == tracks_.end() || found->second.samples.size() < 2) return out;
  const Sample& from = found->second.samples.front();
  const Sample& to = found->second.samples.back();
  auto ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(to.at - from.at).count());
  if (ms == 0) return out;
  out.bytes_per_second = (to.done_blocks - from.done_blocks) * block_size * 1000 / ms;
  if (out.bytes_per_second > 0) out.seconds_left = (out.total_bytes - out.done_bytes) / out.bytes_per_second;
  return out;
}

std::vector<ReplicaId> ResyncMeter::passed_tenths() {
  std::vector<ReplicaId> out;
  for (auto& [id, t] : tracks_) {
    if (t.tenth == t.told) continue;
    t.told = t.tenth;
    if (t.tenth > 0) out.push_back(id);
  }
  return out;
}

}  // namespace twinloft::repl::daemon
