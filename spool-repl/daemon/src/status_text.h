// What `spool-repl status` shows, for people and as JSON.
#pragma once

#include <map>
#include <string>

#include "resync_meter.h"
#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/net/peer_net.h"

namespace twinloft::repl::daemon {

struct NodeView {
  const VolumeSettings& settings;
  Uuid volume;
  std::uint64_t volume_bytes = 0;
  std::string device;  // path of the block device, empty where there is none
  std::string nbd;     // NBD URI, empty where there is none
  bool wants_primary = false;
  std::string arbiter_trouble;  // why its last answer was none; empty where it was one
  const core::VolumeStatus& status;
  const ResyncMeter& resyncs;
  std::string device_trouble = {};  // why there is no device, where one is configured and this replica is
                                    // primary
  std::string stop_waits_for = {};  // a stop was asked for, and this is why it has not ended
  Duration oldest_wait{0};          // how long the oldest request of the front ends has waited; 0: none waits
  Duration oldest_disk_wait{0};     // likewise of the operations of the disks here
  bool device_lost = false;         // to another program: what is on it gets errors
};

// What the network knows of peers that are not connected. `unfit`: what the last handshake that found other
// settings said.
void tell_link_troubles(core::VolumeStatus& status, const net::PeerNet& net,
                        const std::map<ReplicaId, std::string>& unfit);

std::string status_text(const NodeView& view);
std::string status_line(const NodeView& view);  // the same in a line, for logs and for `--watch` without a
                                                // terminal
std::string status_json(const NodeView& view);

}  // namespace twinloft::repl::daemon
