// One line of a file in the format of passwd-file (passwd_file_db.h).
#pragma once

#include <string_view>

#include "row.h"

namespace twinloft::lmtpd {

// The first field. Empty: the line has no user (a comment, an empty line).
std::string_view name_in_passwd_line(std::string_view line);

// `key`: the looked-up key, for the variables in `mail`. Errors name the field.
Result<Row> parse_passwd_line(std::string_view line, const UserKey& key);

}  // namespace twinloft::lmtpd
