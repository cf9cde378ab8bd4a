// UTF-8 as RFC 3629 has it: shortest form, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace twinloft {

// Bytes of the character that `text` begins with; 0 where it begins with none. `text` is not empty.
std::size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);
// And without the control characters U+0080 to U+009F, which terminals obey.
bool is_clean_utf8(std::string_view text);
bool is_ascii(std::string_view text);

// False where there is no such character.
bool append_utf8(std::string& out, char32_t character);

}  // namespace twinloft
