// Which replicas of other sites get their records from a replica near them, and from which one. Without I/O
// and without state.
#pragma once

#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/core/log.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::core {

struct RelayCandidate {
  ReplicaId id = 0;
  std::string_view site = {};
  ReplicaId through = 0;
  bool buffered = false;
  Protocol protocol = Protocol::C;
  RecordNo has = 0;       // it has the records before this one
  ReplicaId present = 0;  // its relay now; 0: it gets its records from the primary
};

// Whether the first replica may take its records from the second now.
using MayTake = std::function<bool(const RelayCandidate& who, const RelayCandidate& relay)>;

// For each replica that gets its records from a relay: that relay. `candidates` are the replicas that follow
// records. The primary stands at `own_site`.
//
// - Of each other site, one replica is the relay of the others: one without a buffer rather than one with a
//   buffer, then one with the stronger protocol, then the present relay, then the one that has the most.
// - A replica that may not take from the relay takes from the next one in this order.
// - A replica whose relay is not of its site goes through the one that its configuration names.
// - A replica never waits for one that the primary waits for less: by its buffer, and by its protocol.
// - A record passes through at most two relays.
std::map<ReplicaId, ReplicaId> plan_relays(std::string_view own_site,
                                           const std::vector<RelayCandidate>& candidates,
                                           const MayTake& may_take);

}  // namespace twinloft::repl::core
