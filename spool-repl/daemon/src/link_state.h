// What `status` shows of the connection to a peer.
#pragma once

#include <optional>

#include "twinloft/spool-repl/compress/setting.h"
#include "twinloft/spool-repl/net/security.h"
#include "twinloft/spool-repl/stream/packed_stream.h"

namespace twinloft::repl::daemon {

struct LinkState {
  net::LinkProtection protection;
  stream::Rate rate = {}, rate_of_all = {};           // at present
  compress::Setting compression = {};                 // as configured
  std::optional<stream::PackingStatus> packing = {};  // nothing: the peer's release knows no frames
};

}  // namespace twinloft::repl::daemon
