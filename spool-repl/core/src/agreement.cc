// The settings that must be equal on both sides of a link. The shell adds the arbiter's address.
#include "twinloft/spool-repl/core/core.h"

#include <algorithm>

namespace twinloft::repl::core {

Agreement agreement_of(const Config& config, std::string_view arbiter, ReplicaId peer) {
  Agreement all;
  auto link = std::find_if(config.peers.begin(), config.peers.end(),
                           [&](const PeerConfig& p) { return p.id == peer; });
  if (link != config.peers.end())
    all.add("protocol", std::string(1, "ABC"[static_cast<int>(link->protocol)]));
  all.add("arbiter.kind", arbiter);
  if (config.arbiter == Arbiter::manual)
    all.add("on_peer_loss", config.on_peer_loss == OnPeerLoss::go_on ? "continue" : "suspend");
  all.add("min_in_sync", std::to_string(config.min_in_sync));
  return all;
}

}  // namespace twinloft::repl::core
