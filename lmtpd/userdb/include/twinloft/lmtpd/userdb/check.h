// The checks of a row of any user database. No action runs as a user whose row has not passed them.
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/user.h"

namespace twinloft::lmtpd {

// Errors: Errc::invalid with the name of the field. uid or gid is 0. The home or the Maildir is not absolute,
// contains a "." or ".." part, NUL or control bytes, or is longer than 4096 bytes. The name is empty, longer
// than 512 bytes, or contains control bytes. The agent's name contains other bytes than letters, digits, "-"
// and "_". An empty maildir is allowed, for users of external agents.
Status check_user(const User& user);

// Whether a local-part or a domain may be a part of a path: not empty, not "." or "..", without "/", NUL and
// control bytes.
bool fits_path(std::string_view part);

// The form in which paths are stored and compared: without doubled slashes, without "." parts, and without a
// slash at the end. "/" is unchanged.
std::string normal_path(std::string_view path);

}  // namespace twinloft::lmtpd
