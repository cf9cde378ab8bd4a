// The one place where the code of Boost.JSON is compiled.
#include "twinloft/base/json.h"

#include <boost/json/src.hpp>

namespace twinloft {

Result<json::object> parse_object(std::string_view text) {
  json::parse_options strict;
  strict.max_depth = 16;
  boost::system::error_code ec;
  json::value v = json::parse({text.data(), text.size()}, ec, {}, strict);
  if (ec) return fail(Errc::corrupt, "no JSON: {}", ec.message());
  if (!v.is_object()) return fail(Errc::corrupt, "no JSON object");
  return std::move(v.get_object());
}

std::optional<std::uint64_t> unsigned_of(const json::value& v) {
  if (v.is_uint64()) return v.get_uint64();
  if (v.is_int64() && v.get_int64() >= 0) return static_cast<std::uint64_t>(v.get_int64());
  return std::nullopt;
}

}  // namespace twinloft
