// A line of fields in the bundle and the ledger. A blank separates fields. Bytes that are not printable
// ASCII, blanks and "%" are %XX with capital digits. An empty field is "-", and the field "-" is "%2D".
// Every text has exactly one encoding.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace twinloft::repl::salvage {

std::string encode_fields(const std::vector<std::string>& fields);
// nullopt: not an output of encode_fields().
std::optional<std::vector<std::string>> decode_fields(std::string_view line);

// Decimal digits without a sign, or with "-" for a signed type. nullopt: any other text.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace twinloft::repl::salvage
