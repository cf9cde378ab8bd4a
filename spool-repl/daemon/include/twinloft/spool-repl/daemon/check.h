// Checks a configuration against the machine: missing files, secrets that other users can read, names that
// cannot be resolved. Nothing is changed, and served volumes are not disturbed.
#pragma once

#include <string>
#include <vector>

#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

struct Findings {
  std::vector<std::string> errors;    // `serve` would refuse, or fail
  std::vector<std::string> warnings;  // `serve` would work, but the administrator should know
};

// May look names up, which can take seconds.
Findings check_volume(const VolumeSettings& settings);

// Errors for files and devices that two volumes would use.
Findings check_shared(const NodeSettings& node);

// The shared secret, without the newline at its end. Empty: none is configured. Errors: Errc::denied (other
// users may read the file), Errc::invalid (too short), or the file cannot be read.
Result<std::string> read_secret(const std::string& path);

}  // namespace twinloft::repl::daemon
