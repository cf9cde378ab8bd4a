// The shares of a volume's links in the memory of all links of the process.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "link_state.h"
#include "twinloft/spool-repl/core/link_memory.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/stream/memory_pool.h"

namespace twinloft::repl::daemon {

class LinkShares final : public core::LinkMemory {
 public:
  // Errors: Errc::exhausted (the pool has no room for these links).
  static Result<std::shared_ptr<LinkShares>> join(const std::vector<PeerSettings>& peers,
                                                  const std::shared_ptr<stream::MemoryPool>& pool);
  void holds(ReplicaId peer, std::uint64_t bytes) override;
  bool takes(ReplicaId peer, std::uint64_t more, For what) override;
  LinkMemoryState state(ReplicaId peer) const;

 private:
  std::shared_ptr<stream::MemoryPool> pool_;
  struct Link {
    std::unique_ptr<stream::MemoryPool::Share> share;
    std::array<bool, 2> waits{};  // for each For: the last take was refused, and nothing became free since
  };
  std::map<ReplicaId, Link> links_;
};

// The reserves of all these links. Less than this is refused as `link_memory`.
std::uint64_t link_memory_min(const std::vector<VolumeSettings>& volumes);

}  // namespace twinloft::repl::daemon
