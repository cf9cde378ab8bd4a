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

}  // namespace twinloft::repl::daemon
