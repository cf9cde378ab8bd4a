// Settings that are right, and that nothing uses.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <vector>

#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

// One sentence each. `root`: the file, as it says more than `config` whether a key is there.
std::vector<std::string> find_ignored(const Config& config, const toml::table& root);

}  // namespace twinloft::lmtpd
