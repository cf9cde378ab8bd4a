// What every row of every user database must satisfy before anything is done as that user.
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// Errc::invalid, naming the field: uid or gid 0, a home or Maildir that is not absolute, holds a "."
// or ".." part, NUL or control bytes, or is longer than 4096 bytes; a name that is empty, longer than 512
// bytes, or holds control bytes; an agent name of other bytes than letters, digits, "-" and "_". An empty
// maildir is allowed, for users of external agents.
Status check_user(const User& user);

// A local part or domain that may be put into a path: not empty, not "." or "..", without "/", NUL and
// control bytes.
bool fits_path(std::string_view part);

// The one form that paths are kept and compared in: without doubled slashes, without "." parts, and without a
// slash at the end. "/" stays.
std::string normal_path(std::string_view path);

}  // namespace twinloft::lmtpd
