// The sections [filters] and [filter.NAME].
#pragma once

#include "toml_table.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

void read_filters(const TomlTable& top, Config& config);

}  // namespace twinloft::lmtpd
