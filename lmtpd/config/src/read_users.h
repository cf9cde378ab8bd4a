// Section [users].
#pragma once

#include "toml_table.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

void read_users(const TomlTable& top, UserSettings& users);

}  // namespace twinloft::lmtpd
