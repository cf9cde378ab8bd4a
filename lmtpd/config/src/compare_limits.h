// Limits that are valid, but contradict each other.
#pragma once

#include <string>
#include <vector>

#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

// A sentence for each contradiction, with the keys and their values.
std::vector<std::string> compare_limits(const Config& config);

}  // namespace twinloft::lmtpd
