// Reading JSON that came from elsewhere.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::repl::arbiter {

namespace json = boost::json;

// Errc::corrupt, with what is wrong, where it is not one JSON object.
Result<json::object> parse_object(std::string_view text);
// Numbers only; nullopt for negative ones, fractions and everything else.
std::optional<std::uint64_t> unsigned_of(const json::value& v);

}  // namespace twinloft::repl::arbiter
