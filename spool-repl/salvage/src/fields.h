// A line of fields, as bundle and ledger have them: separated by one blank; bytes that are not printable
// ASCII, blanks and
// "%" as %XX with capital digits; an empty field as "-", and a field that is "-" as "%2D". Every text has one
// encoding.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace twinloft::repl::salvage {

std::string encode_fields(const std::vector<std::string>& fields);
// nullopt: not what encode_fields() makes.
std::optional<std::vector<std::string>> decode_fields(std::string_view line);

// Decimal digits without a sign, or with "-" for a signed type; nothing else.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace twinloft::repl::salvage
