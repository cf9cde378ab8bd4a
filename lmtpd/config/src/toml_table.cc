#include "toml_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

namespace twinloft::lmtpd {

namespace {

// Levenshtein's distance, for "did you mean".
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

std::string suggestion(std::string_view key, std::span<const std::string_view> keys) {
  auto nearest = std::min_element(keys.begin(), keys.end(), [&](std::string_view a, std::string_view b) {
    return distance(key, a) < distance(key, b);
  });
  if (nearest == keys.end() || distance(key, *nearest) > std::max<std::size_t>(2, key.size() / 3)) {
    std::string all;
    for (std::string_view k : keys) all += (all.empty() ? "" : ", ") + std::string(k);
    return "unknown key; known here: " + all;
  }
  return fmt::format("unknown key; did you mean \"{}\"?", *nearest);
}

}  // namespace

std::string TomlTable::place(std::string_view key) const {
  const toml::node* node = table_.get(key);
  auto line = node ? node->source().begin.line : table_.source().begin.line;
  return fmt::format("{}:{}: {}{}{}", problems_.file, std::max<toml::source_index>(line, 1), path_,
                     path_.empty() ? "" : ".", key);
}

void TomlTable::error(std::string_view key, std::string_view what) const {
  problems_.errors.push_back(fmt::format("{}: {}", place(key), what));
}

void TomlTable::allow(std::span<const std::string_view> some, std::initializer_list<std::string_view> more) const {
  std::vector<std::string_view> keys(some.begin(), some.end());
  keys.insert(keys.end(), more);
  for (const auto& [key, value] : table_)
    if (std::find(keys.begin(), keys.end(), key.str()) == keys.end())
      error(key.str(), suggestion(key.str(), keys));
}

void TomlTable::text(std::string_view key, std::string& out, bool required) const {
  const toml::node* node = table_.get(key);
  if (!node) {
    if (required) error(key, "is missing");
    return;
  }
  auto value = node->value_exact<std::string>();
  if (!value || value->find('\0') != std::string::npos) return error(key, "expected a text in quotes");
  if (required && value->empty()) return error(key, "must not be empty");
  out = std::move(*value);
}

void TomlTable::path(std::string_view key, std::string& out, bool required) const {
  std::string value = out;
  text(key, value, required);
  if (has(key) && !value.empty() && value[0] != '/') return error(key, "expected an absolute path");
  out = std::move(value);
}

void TomlTable::texts(std::string_view key, std::vector<std::string>& out) const {
  const toml::node* node = table_.get(key);
  if (!node) return;
  const toml::array* array = node->as_array();
  std::vector<std::string> values;
  for (std::size_t i = 0; array && i < array->size(); ++i) {
    auto value = array->get(i)->value_exact<std::string>();
    if (!value || value->find('\0') != std::string::npos) array = nullptr;
    else values.push_back(std::move(*value));
  }
  if (!array) return error(key, "expected a list of texts, such as [\"a\", \"b\"]");
  out = std::move(values);
}

void TomlTable::flag(std::string_view key, bool& out) const {
  const toml::node* node = table_.get(key);
  if (!node) return;
  auto value = node->value_exact<bool>();
  if (!value) return error(key, "expected true or false, without quotes");
  out = *value;
}

bool TomlTable::read_number(std::string_view key, std::uint64_t low, std::uint64_t high,
                            std::uint64_t& out) const {
  const toml::node* node = table_.get(key);
  if (!node) return false;
  auto value = node->value_exact<std::int64_t>();
  if (!value || *value < 0 || std::cmp_less(*value, low) || std::cmp_greater(*value, high)) {
    error(key, fmt::format("expected a number from {} to {}", low, high));
    return false;
  }
  out = static_cast<std::uint64_t>(*value);
  return true;
}

bool TomlTable::scaled(std::string_view key, std::initializer_list<Unit> units, std::string_view expected,
                       std::uint64_t& out) const {
  const toml::node* node = table_.get(key);
  if (!node) return false;
  std::string value = node->is_integer() ? std::to_string(node->value_or<std::int64_t>(-1))
                                         : node->value_or<std::string>("");
  std::uint64_t number = 0;
  auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
  std::string_view suffix(end, static_cast<std::size_t>(value.data() + value.size() - end));
  auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.suffix == suffix; });
  if (code != std::errc() || unit == units.end() || number > (UINT64_MAX >> 2) / unit->factor) {
    error(key, fmt::format("expected {}", expected));
    return false;
  }
  out = number * unit->factor;
  return true;
}

void TomlTable::size(std::string_view key, std::uint64_t low, std::uint64_t high, std::uint64_t& out) const {
  std::uint64_t value = 0;
  if (!scaled(key,
              {{"", 1}, {"B", 1}, {"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}, {"kB", 1'000},
               {"MB", 1'000'000}, {"GB", 1'000'000'000}},
              "a size such as \"64KiB\" or \"50MiB\"", value))
    return;
  if (value < low || value > high) return error(key, fmt::format("expected {} to {} bytes", low, high));
  out = value;
}

void TomlTable::duration(std::string_view key, std::chrono::milliseconds& out, bool may_be_zero) const {
  constexpr std::uint64_t day_ms = 86'400'000;
  std::uint64_t value = 0;
  if (!scaled(key, {{"ms", 1}, {"s", 1'000}, {"min", 60'000}, {"h", 3'600'000}},
              "a time with its unit, such as \"500ms\", \"30s\" or \"5min\"", value))
    return;
  if (value > 30 * day_ms || (value == 0 && !may_be_zero)) return error(key, may_be_zero ? "must be at most 720h" : "must be above 0 and at most 720h");
  out = std::chrono::milliseconds(value);
}

void TomlTable::identity(std::string_view key, std::string& out) const {
  const toml::node* node = table_.get(key);
  if (!node) return;
  if (auto number = node->value_exact<std::int64_t>()) {
    if (*number < 1 || *number > 4294967294) return error(key, "expected a name, or a number above 0");
    out = std::to_string(*number);
    return;
  }
  text(key, out, true);
}

const toml::table* TomlTable::child(std::string_view key) const {
  const toml::node* node = table_.get(key);
  if (node && !node->is_table())
    error(key, fmt::format("expected a section [{}{}{}]", path_, path_.empty() ? "" : ".", key));
  return node ? node->as_table() : nullptr;
}

}  // namespace twinloft::lmtpd
