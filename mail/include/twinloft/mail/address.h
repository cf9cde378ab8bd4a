// The forms of addresses that a client of LMTP sends.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace twinloft::mail {

// The local-part as a dot-string, or as a quoted string if it needs quotes (RFC 5321 section 4.1.2). Both may
// contain UTF-8 (RFC 6531).
std::string quote_local_part(std::string_view text);

// A server that ends names at these characters (Dovecot's recipient_delimiter) reads this shorter name in an
// address of the user. nullopt: it reads the whole name.
std::optional<std::string_view> misread_name(std::string_view user, std::string_view delimiters);

}  // namespace twinloft::mail
