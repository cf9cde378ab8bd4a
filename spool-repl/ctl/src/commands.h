// The commands of `spool-repl` that are more than a line.
#pragma once

#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::ctl {

// Exit codes of spool-repl; docs/spool-repl.md explains them.
enum Exit : int { exit_ok = 0, exit_failed = 1, exit_degraded = 2, exit_usage = 64, exit_unavailable = 69, exit_config = 78 };

// Serves every volume of the node until SIGTERM or SIGINT. A second signal takes devices away that are still in use.
int serve(const daemon::NodeSettings& node);

}  // namespace twinloft::repl::ctl
