// JSON (RFC 8259) by Boost.JSON, which is used as headers: json.cc compiles it. Include this header in place
// of those of Boost.
#pragma once

#ifndef BOOST_JSON_STANDALONE
#define BOOST_JSON_STANDALONE 0  // Boost's headers test it, and -Wundef needs a definition
#endif
#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft {

namespace json = boost::json;

// Errors: Errc::corrupt (the text is not a single JSON object).
Result<json::object> parse_object(std::string_view text);
// nullopt: negative, a fraction, or not a number.
std::optional<std::uint64_t> unsigned_of(const json::value& v);

// One member on each line, indented, in the order of the members, with a line feed at the end. For files that
// people read too. Numbers that are not finite become null.
std::string indented_json(const json::value& value);
// Converts bytes that may not be UTF-8, such as a file name: each byte becomes the character of its number.
std::string json_text(std::string_view bytes);

}  // namespace twinloft
