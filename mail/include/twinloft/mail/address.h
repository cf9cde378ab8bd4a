// Addresses as a client of LMTP writes them.
#pragma once

#include <string>
#include <string_view>

namespace twinloft::mail {

// As a dot-string or a quoted string (RFC 5321 section 4.1.2). Bytes above ASCII are good in both (RFC 6531).
std::string quote_local_part(std::string_view text);

}  // namespace twinloft::mail
