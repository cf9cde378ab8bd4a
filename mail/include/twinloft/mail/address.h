// The forms of addresses that a client of LMTP sends.
#pragma once

#include <string>
#include <string_view>

namespace twinloft::mail {

// The local-part as a dot-string, or as a quoted string if it needs quotes (RFC 5321 section 4.1.2). Both may
// contain UTF-8 (RFC 6531).
std::string quote_local_part(std::string_view text);

}  // namespace twinloft::mail
