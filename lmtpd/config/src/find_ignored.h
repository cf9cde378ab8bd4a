// Valid settings that have no effect.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <vector>

#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

// A sentence for each. root: the file, which shows whether a key is present.
std::vector<std::string> find_ignored(const Config& config, const toml::table& root);

}  // namespace twinloft::lmtpd
