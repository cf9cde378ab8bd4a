// [delivery.sieve]
#pragma once

#include "toml_table.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

// Call it after the other next hops, the spool and the quota have been read.
void read_sieve(const TomlTable& top, Config& config);

}  // namespace twinloft::lmtpd
