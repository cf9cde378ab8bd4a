// Limits that are right each by itself, and do not fit together.
#pragma once

#include <string>
#include <vector>

#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

// One sentence each, with the keys and their values.
std::vector<std::string> compare_limits(const Config& config);

}  // namespace twinloft::lmtpd
