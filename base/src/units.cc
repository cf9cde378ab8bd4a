#include "twinloft/base/units.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>

namespace twinloft {

namespace {

struct Unit {
  std::string_view name;  // lower case
  std::uint64_t factor;
};

constexpr std::uint64_t ki = 1024, mi = ki * ki, gi = mi * ki, ti = gi * ki;
constexpr Unit size_units[] = {{"", 1},
                               {"b", 1},
                               {"k", ki},
                               {"kib", ki},
                               {"kb", 1'000},
                               {"m", mi},
                               {"mib", mi},
                               {"mb", 1'000'000},
                               {"g", gi},
                               {"gib", gi},
                               {"gb", 1'000'000'000},
                               {"t", ti},
                               {"tib", ti},
                               {"tb", 1'000'000'000'000}};
constexpr std::uint64_t size_max = 1ull << 62;

constexpr std::uint64_t us = 1'000, ms = us * 1'000, s = ms * 1'000, minute = s * 60, hour = minute * 60,
                        day = hour * 24;
constexpr Unit time_units[] = {{"ns", 1},     {"us", us},      {"ms", ms},  {"s", s},
                               {"m", minute}, {"min", minute}, {"h", hour}, {"d", day}};
constexpr std::uint64_t time_max = day * 36'500;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Digits with at most one point: an integer, and the power of ten that it is divided by.
struct Decimal {
  std::uint64_t digits = 0;
  std::uint64_t divisor = 1;
};

// The number before the unit. Nothing: not a number, or more digits than any size or time needs.
std::optional<Decimal> take_decimal(std::string_view& text) {
  constexpr std::uint64_t digits_max = UINT64_MAX / 10 - 1;
  constexpr std::uint64_t divisor_max = 1'000'000'000;
  Decimal out;
  bool point = false;
  std::size_t at = 0;
  for (; at < text.size() && (is_digit(text[at]) || (text[at] == '.' && !point)); ++at) {
    if (text[at] == '.') {
      point = true;
      continue;
    }
    if (out.digits > digits_max || (point && out.divisor >= divisor_max)) return std::nullopt;
    out.digits = out.digits * 10 + static_cast<std::uint64_t>(text[at] - '0');
    if (point) out.divisor *= 10;
  }
  bool ends_in_digit = at > 0 && is_digit(text[at - 1]);
  if (!ends_in_digit || !is_digit(text[0])) return std::nullopt;
  text.remove_prefix(at);
  return out;
}

// Nothing: not a number with one of the units, or above `most`.
std::optional<std::uint64_t> scaled(std::string_view text, std::span<const Unit> units, std::uint64_t most) {
  auto number = take_decimal(text);
  if (!number) return std::nullopt;
  auto unit = std::ranges::find(units, lower(text), &Unit::name);
  if (unit == units.end() || (number->divisor > 1 && unit->factor == 1)) return std::nullopt;
  __extension__ using Wide = unsigned __int128;
  Wide value = (Wide(number->digits) * unit->factor + number->divisor / 2) / number->divisor;
  if (value > most) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  if (auto bytes = scaled(text, size_units, size_max)) return *bytes;
  return fail(Errc::invalid,
              "\"{}\" is not a size: expected a number of bytes, or one such as 64KiB, 50MiB, 2G or 1GB",
              text);
}

Result<Duration> parse_duration(std::string_view text, BareNumber bare) {
  bool digits_only = !text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos;
  std::string with_unit(text);
  if (digits_only && (bare == BareNumber::seconds || text == "0")) with_unit += 's';
  if (auto ns = scaled(with_unit, time_units, time_max)) return Duration(static_cast<std::int64_t>(*ns));
  return fail(Errc::invalid,
              "\"{}\" is not a time: expected a number with its unit, such as 500ms, 30s, 5min, 2h or 1d",
              text);
}

}  // namespace twinloft
