// Only this file compiles the code of Boost.JSON.
#include "twinloft/base/json.h"

#include <boost/json/src.hpp>

#include <cmath>

namespace twinloft {

namespace {

void put_line_end(std::size_t depth, std::string& out) {
  constexpr std::size_t blanks_a_level = 2;
  out += '\n';
  out.append(depth * blanks_a_level, ' ');
}

// Writes each member with `put`, on its own line, separated by commas.
template <class Members, class Put>
void put_members(const Members& members, const char* brackets, std::size_t depth, std::string& out, Put put) {
  out += brackets[0];
  bool first = true;
  for (const auto& member : members) {
    if (!first) out += ',';
    first = false;
    put_line_end(depth + 1, out);
    put(member);
  }
  if (!first) put_line_end(depth, out);
  out += brackets[1];
}

void put_value(const json::value& value, std::size_t depth, std::string& out) {
  if (value.is_object()) {
    put_members(value.get_object(), "{}", depth, out, [&](const json::key_value_pair& member) {
      out += json::serialize(member.key());
      out += ": ";
      put_value(member.value(), depth + 1, out);
    });
  } else if (value.is_array()) {
    put_members(value.get_array(), "[]", depth, out,
                [&](const json::value& member) { put_value(member, depth + 1, out); });
  } else if (value.is_double()) {
    out += std::isfinite(value.get_double()) ? fmt::format("{:.10g}", value.get_double()) : "null";
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

Result<json::object> parse_object(std::string_view text) {
  json::parse_options strict;
  strict.max_depth = 16;
  boost::system::error_code ec;
  json::value v = json::parse({text.data(), text.size()}, ec, {}, strict);
  if (ec) return fail(Errc::corrupt, "not JSON: {}", ec.message());
  if (!v.is_object()) return fail(Errc::corrupt, "not a JSON object");
  return std::move(v.get_object());
}

std::optional<std::uint64_t> unsigned_of(const json::value& v) {
  if (v.is_uint64()) return v.get_uint64();
  if (v.is_int64() && v.get_int64() >= 0) return static_cast<std::uint64_t>(v.get_int64());
  return std::nullopt;
}

std::string indented_json(const json::value& value) {
  std::string out;
  put_value(value, 0, out);
  return out + '\n';
}

std::string json_text(std::string_view bytes) {
  std::string out;
  for (char c : bytes) {
    auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) out += static_cast<char>(0xc0 | (byte >> 6));
    out += byte < 0x80 ? c : static_cast<char>(0x80 | (byte & 0x3f));
  }
  return out;
}

}  // namespace twinloft
