// The directory of the folder that the detail of an address names (RFC 5233), in a Maildir++ with Dovecot's
// layout.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::mail {

// Modified UTF-7 (RFC 3501 section 5.1.3): encodes "&" and characters that are not printable ASCII. name:
// UTF-8 without control characters.
std::string encode_mutf7(std::string_view name);

// ".Lists.dev" for "Lists.dev". separator: of levels, '.' or '/'. nullopt: the detail names no folder below
// the inbox. It is empty or "INBOX"; a level is empty, contains "/" or "." other than as the separator,
// begins with "~", contains a wildcard of IMAP's LIST ("*", "%"), or is not text; there are more than 16
// levels; or the name has more than 255 bytes.
std::optional<std::string> folder_directory(std::string_view detail, char separator);

// The same for a folder of the configuration, such as ".Trash" for "Trash". Errors: not the name of a folder.
Result<std::string> quota_folder(std::string_view name, char separator);

}  // namespace twinloft::mail
