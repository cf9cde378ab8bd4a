// The larger commands of `spool-repl`.
#pragma once

#include <string>
#include <vector>

#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::ctl {

// Exit codes of spool-repl; docs/spool-repl.md explains them.
// Of `status`, the worst of all volumes counts: 2 to 9, and exit_unavailable as the worst of all.
enum Exit : int {
  exit_ok = 0,
  exit_failed = 1,
  exit_suspended = 2,
  exit_incomplete = 2,  // of `salvage`: complete, but some mail was left, which the report names
  exit_volume_failed = 3,
  exit_split_brain = 4,
  exit_no_primary = 5,
  exit_degraded = 6,
  exit_resyncing = 7,
  exit_stalled = 8,
  exit_starting = 9,
  exit_usage = 64,
  exit_unavailable = 69,
  exit_denied = 77,
  exit_config = 78
};

struct NodeOptions {
  std::string command, config = "/etc/twinloft/spool-repl.toml", volume;
  bool json = false, force = false, accept_loss = false, adopt = false, overwrite = false, watch = false,
       follow = false, syntax = false;
  std::uint64_t since = 0;  // events: only those after this number
};

int report(const Error& error, int exit_code);  // a line for each line of the message
int exit_of_answer(const Error& error);         // of an answer of a server process

// Both are for the named volume, or for all volumes.
int status(const daemon::NodeSettings& node, const NodeOptions& options);
int events(const daemon::NodeSettings& node, const NodeOptions& options);

// Serves every volume of the node until SIGTERM or SIGINT. A second signal takes devices away, also from
// their users. SIGHUP reads `path` again.
int serve(const daemon::NodeSettings& node, const std::string& path);

// arguments: after `spool-repl journal`. Works without a server, and needs a configuration only for a named
// volume.
int journal_command(const std::vector<std::string>& arguments);
int cert_command(const std::vector<std::string>& arguments);

// Tests FUSE over io_uring on this machine. Prints "good", or the reason why not.
[[noreturn]] void ring_test_command();

// arguments: after `spool-repl salvage`, and after the words of its two parts. Extraction works without a
// server.
int salvage_command(const std::vector<std::string>& arguments);
int salvage_extract(const std::vector<std::string>& arguments);
int salvage_deliver(const std::vector<std::string>& arguments);

}  // namespace twinloft::repl::ctl
