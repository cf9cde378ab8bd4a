#include "link_shares.h"

namespace twinloft::repl::daemon {

namespace {

// With so much for each link, a protocol C link has its whole window also while all others are busy.
constexpr std::uint64_t usual_for_each = 32u << 20;

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
  if (bytes < link.share->held()) link.waits = false;
  link.share->hold(bytes);
}

bool LinkShares::takes(ReplicaId peer, std::uint64_t more) {
  Link& link = links_.at(peer);
  link.waits = !link.share->take(more);
  return !link.waits;
}

LinkMemoryState LinkShares::state(ReplicaId peer) const {
  const Link& link = links_.at(peer);
  return {link.share->held(), pool_->bytes(), link.waits};
}

std::uint64_t link_memory_min(const std::vector<VolumeSettings>& volumes) {
  std::uint64_t bytes = 0;
  for (const VolumeSettings& v : volumes)
    for (const PeerSettings& p : v.peers) bytes += reserve_of(p);
  return bytes;
}

std::uint64_t usual_link_memory(const std::vector<VolumeSettings>& volumes) {
  std::uint64_t links = 0;
  for (const VolumeSettings& v : volumes) links += v.peers.size();
  return links * usual_for_each;
}

}  // namespace twinloft::repl::daemon
