// What can be wrong with a configuration beyond its words: files that are missing, secrets that others can
// read, names that nobody knows. Nothing is changed, and nothing that is being served is disturbed.
#pragma once

#include <string>
#include <vector>

#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

struct Findings {
  std::vector<std::string> errors;    // `serve` would refuse, or fail
  std::vector<std::string> warnings;  // it would not, and somebody should know
};

// May look names up, which can take seconds.
Findings check_volume(const VolumeSettings& settings);

// Files and devices that two volumes would use.
Findings check_shared(const NodeSettings& node);

// The shared secret, without the newline at its end; empty where none is configured. Errors: Errc::denied
// (others may read it), Errc::invalid (too short), or why it can not be read.
Result<std::string> read_secret(const std::string& path);

}  // namespace twinloft::repl::daemon
