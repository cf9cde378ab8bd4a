// The commands of `spool-repl` that are more than a line.
#pragma once

#include <string>
#include <vector>

#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::ctl {

// Exit codes of spool-repl; docs/spool-repl.md explains them.
enum Exit : int { exit_ok = 0, exit_failed = 1, exit_degraded = 2, exit_usage = 64, exit_unavailable = 69, exit_config = 78 };

struct NodeOptions {
  std::string command, config = "/etc/twinloft/spool-repl.toml", volume;
  bool json = false, force = false, accept_loss = false, adopt = false, overwrite = false, watch = false, follow = false, syntax = false;
  std::uint64_t since = 0;  // events: only those behind this number
};

int report(const Error& error, int exit_code);

// Both are for the volume that is named, or for all.
int status(const daemon::NodeSettings& node, const NodeOptions& options);
int events(const daemon::NodeSettings& node, const NodeOptions& options);

// Serves every volume of the node until SIGTERM or SIGINT. A second signal takes devices away that are still in use.
int serve(const daemon::NodeSettings& node);

// What comes behind `spool-repl journal`. Offline; needs a configuration only where a volume is named.
int journal_command(const std::vector<std::string>& arguments);

// What comes behind `spool-repl salvage`, and behind its two parts. Extraction is offline.
int salvage_command(const std::vector<std::string>& arguments);
int salvage_extract(const std::vector<std::string>& arguments);
int salvage_deliver(const std::vector<std::string>& arguments);

}  // namespace twinloft::repl::ctl
