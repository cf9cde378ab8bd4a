// The keys of the links: [[volume.NAME.peer]], and what all links of the process share.
#pragma once

#include "config_table.h"
#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

// `bandwidth` and `bandwidth_at`, of a link or of the process.
void read_bandwidth(const Table& t, stream::BandwidthPlan& plan);
// Once all volumes are read.
void read_link_memory(const Table& t, NodeSettings& node);
void read_peers(const Table& t, VolumeSettings& v);

}  // namespace twinloft::repl::daemon
