// The section [spool_milter].
#pragma once

#include "toml_table.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

// Call it after [[listen]] was read.
void read_spool_milter(const TomlTable& top, Config& config);

}  // namespace twinloft::lmtpd
