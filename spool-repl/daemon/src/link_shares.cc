#include "link_shares.h"

namespace twinloft::repl::daemon {

namespace {

constexpr std::uint64_t usual_for_each = 32u << 20, usual_for_buffered = 96u << 20;

std::uint64_t reserve_of(const PeerSettings& p) {
  return p.buffer ? core::buffered_link_reserve : core::link_reserve;
}

}  // namespace

Result<std::shared_ptr<LinkShares>> LinkShares::join(const std::vector<PeerSettings>& peers,
                                                     const std::shared_ptr<stream::MemoryPool>& pool) {
  auto all = std::make_shared<LinkShares>();
  all->pool_ = pool;
  for (const PeerSettings& p : peers) {
    TL_TRY_ASSIGN(all->links_[p.id].share, pool->join(reserve_of(p)));
  }
  return all;
}

void LinkShares::holds(ReplicaId peer, std::uint64_t bytes) {
  Link& link = links_.at(peer);
  if (bytes < link.share->held()) link.waits.fill(false);
  link.share->hold(bytes);
}

bool LinkShares::takes(ReplicaId peer, std::uint64_t more, For what) {
  Link& link = links_.at(peer);
  bool taken = link.share->take(more);
  link.waits[static_cast<std::size_t>(what)] = !taken;
  return taken;
}

LinkMemoryState LinkShares::state(ReplicaId peer) const {
  const Link& link = links_.at(peer);
  return {pool_->bytes(), link.waits[0] || link.waits[1]};
}

std::uint64_t link_memory_min(const std::vector<VolumeSettings>& volumes) {
  std::uint64_t bytes = 0;
  for (const VolumeSettings& v : volumes)
    for (const PeerSettings& p : v.peers) bytes += reserve_of(p);
  return bytes;
}

std::uint64_t link_memory_of(const NodeSettings& node, const std::vector<VolumeSettings>& also) {
  if (node.link_memory) return *node.link_memory;
  std::uint64_t bytes = 0;
  for (const auto* volumes : {&node.volumes, &also})
    for (const VolumeSettings& v : *volumes)
      for (const PeerSettings& p : v.peers) bytes += p.buffer ? usual_for_buffered : usual_for_each;
  return bytes;
}

}  // namespace twinloft::repl::daemon
