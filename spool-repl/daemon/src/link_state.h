// What `status` shows of the connection to a peer.
#pragma once

#include <optional>
#include <vector>

#include "twinloft/spool-repl/compress/setting.h"
#include "twinloft/spool-repl/net/peer_net.h"
#include "twinloft/spool-repl/net/security.h"
#include "twinloft/spool-repl/stream/packed_stream.h"

namespace twinloft::repl::daemon {

struct LinkMemoryState {
  std::uint64_t bound = 0;  // bytes: the most of all links
  bool waits = false;       // more would be on its way to the peer if there were memory for it
};

struct LinkState {
  net::LinkProtection protection;
  stream::Rate rate = {}, rate_of_all = {};           // at present
  compress::Setting compression = {};                 // as configured
  std::optional<stream::PackingStatus> packing = {};  // nothing: the peer's release knows no frames
  std::optional<LinkMemoryState> memory = {};
  std::vector<net::PathStatus> paths = {};  // of a link of several paths
};

}  // namespace twinloft::repl::daemon
