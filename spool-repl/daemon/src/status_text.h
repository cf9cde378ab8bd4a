// The output of `spool-repl status`, as text and as JSON.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "link_state.h"
#include "resync_meter.h"
#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/net/peer_net.h"

namespace twinloft::repl::daemon {

struct NodeView {
  const VolumeSettings& settings;
  Uuid volume;
  std::uint64_t volume_bytes = 0;
  std::string device;  // path of the block device; empty: none
  std::string nbd;     // NBD URI; empty: none
  bool wants_primary = false;
  std::string arbiter_trouble;  // why it has not answered the last request; empty: it has
  const core::VolumeStatus& status;
  const ResyncMeter& resyncs;
  std::string device_trouble = {};  // why there is no device, where one is configured and this replica is
                                    // primary
  std::string stop_waits_for = {};  // why a requested stop has not ended
  Duration oldest_wait{0};          // of the oldest request of the front ends; 0: none waits
  Duration oldest_disk_wait{0};     // of the oldest operation of the disks here
  bool device_lost = false;         // to another program: its users get errors
  std::map<ReplicaId, LinkState> links = {};          // to the peers that are connected
  std::optional<std::int64_t> certificate_ends = {};  // of this replica, in seconds since 1970
  std::int64_t wall_seconds = 0;                      // now, likewise
};

// The network's state of peers that are not connected. unfit: the differences that the last handshake found.
void tell_link_troubles(core::VolumeStatus& status, const net::PeerNet& net,
                        const std::map<ReplicaId, std::string>& unfit);

std::string status_text(const NodeView& view);
std::string status_line(const NodeView& view);  // the same in a line, for logs and for `--watch` without a
                                                // terminal
std::string status_json(const NodeView& view);

}  // namespace twinloft::repl::daemon
