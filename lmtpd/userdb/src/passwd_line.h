// One line of a file in the format of passwd-file (passwd_file_db.h).
#pragma once

#include <string_view>

#include "row.h"

namespace twinloft::lmtpd {

// The first field. Empty: no user's line (a comment, nothing).
std::string_view name_in_passwd_line(std::string_view line);

// `key`: who was asked for, for the variables in `mail`. Errors say which field.
Result<Row> parse_passwd_line(std::string_view line, const UserKey& key);

}  // namespace twinloft::lmtpd
