// [next_hop.NAME]
#pragma once

#include <string>

#include "toml_table.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

void read_next_hops(const TomlTable& top, Config& config);

}  // namespace twinloft::lmtpd
