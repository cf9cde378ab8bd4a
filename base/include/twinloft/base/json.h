// JSON (RFC 8259) by Boost.JSON, which is used as headers: json.cc compiles it, and this header is the only
// way to it.
#pragma once

#ifndef BOOST_JSON_STANDALONE
#define BOOST_JSON_STANDALONE 0  // which Boost's headers ask for, and -Wundef wants to be defined
#endif
#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft {

namespace json = boost::json;

// Errc::corrupt, with what is wrong, where it is not one JSON object.
Result<json::object> parse_object(std::string_view text);
// Numbers only; nullopt for negative ones, fractions and everything else.
std::optional<std::uint64_t> unsigned_of(const json::value& v);

// A member a line, indented, in the order of the members, and a line feed at the end: for files that people
// look at too. Numbers that are not finite are null.
std::string indented_json(const json::value& value);
// As text, what need not be UTF-8, such as the name of a file: each byte is the character of that number.
std::string json_text(std::string_view bytes);

}  // namespace twinloft
