// The folder that an address's detail names (RFC 5233): its directory in a Maildir++, as Dovecot lays it out.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::mail {

// "&" and what is not printable ASCII in modified UTF-7 (RFC 3501 section 5.1.3). `name` is UTF-8 without
// control characters.
std::string encode_mutf7(std::string_view name);

// ".Lists.dev" for "Lists.dev": levels parted by `separator` ('.' or '/'). nullopt where it names no folder
// below the inbox: it is empty or "INBOX", a level is empty, or holds what could lead elsewhere ("/" and "."
// that part no level, "~" at its beginning), means something to IMAP's LIST ("*", "%"), or is no text; more
// than 16 levels; a name longer than a file system takes (255 bytes).
std::optional<std::string> folder_directory(std::string_view detail, char separator);

// The same for a folder of the configuration, such as ".Trash" for "Trash". The error says that it is no
// folder's name.
Result<std::string> quota_folder(std::string_view name, char separator);

}  // namespace twinloft::mail
