// UTF-8 of RFC 3629: shortest form, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace twinloft {

// The number of bytes of the first character, or 0 if `text` does not begin with one. `text` is not empty.
std::size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);
// UTF-8 without the control characters U+0080 to U+009F, which terminals interpret.
bool is_clean_utf8(std::string_view text);
bool is_ascii(std::string_view text);

// False: there is no such character, and nothing is appended.
bool append_utf8(std::string& out, char32_t character);

}  // namespace twinloft
