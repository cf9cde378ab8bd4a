#include "toml_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "twinloft/base/suggest.h"
#include "twinloft/base/units.h"

namespace twinloft::lmtpd {

std::string TomlTable::place(std::string_view key) const {
  const toml::node* node = table_.get(key);
  auto line = node ? node->source().begin.line : table_.source().begin.line;
  return fmt::format("{}:{}: {}{}{}", problems_.file, std::max<toml::source_index>(line, 1), path_,
                     path_.empty() ? "" : ".", key);
}

void TomlTable::error(std::string_view key, std::string_view what) const {
  problems_.errors.push_back(fmt::format("{}: {}", place(key), what));
  problems_.sections.insert(path_.empty() ? std::string(key) : path_.substr(0, path_.find('.')));
}

void TomlTable::wrong_word(std::string_view key, std::string_view what, std::string_view word,
                           std::initializer_list<std::string_view> known) const {
  auto nearest = nearest_word(word, std::span(known.begin(), known.size()));
  error(key, nearest ? fmt::format("{}; did you mean \"{}\"?", what, *nearest) : std::string(what));
}

void TomlTable::warning(std::string_view key, std::string_view what) const {
  problems_.warnings.push_back(fmt::format("{}: {}", place(key), what));
}

void TomlTable::allow(std::span<const std::string_view> some,
                      std::initializer_list<std::string_view> more) const {
  std::vector<std::string_view> keys(some.begin(), some.end());
  keys.insert(keys.end(), more);
  for (const auto& [key, value] : table_)
    if (std::find(keys.begin(), keys.end(), key.str()) == keys.end())
      error(key.str(), "unknown key; " + did_you_mean(key.str(), keys));
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
    if (!value || value->find('\0') != std::string::npos)
      array = nullptr;
    else
      values.push_back(std::move(*value));
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

std::optional<std::string> TomlTable::with_unit(std::string_view key, std::string_view expected) const {
  const toml::node* node = table_.get(key);
  if (!node) return std::nullopt;
  if (node->is_integer()) return std::to_string(node->value_or<std::int64_t>(-1));
  auto value = node->value_exact<std::string>();
  if (!value) error(key, expected);
  return value;
}

void TomlTable::size(std::string_view key, std::uint64_t low, std::uint64_t high, std::uint64_t& out) const {
  auto text = with_unit(key, "expected a size such as \"64KiB\" or \"50MiB\"");
  if (!text) return;
  auto value = parse_size(*text);
  if (!value) return error(key, value.error().message);
  if (*value < low || *value > high) return error(key, fmt::format("expected {} to {} bytes", low, high));
  out = *value;
}

void TomlTable::duration(std::string_view key, std::chrono::milliseconds& out, bool may_be_zero) const {
  auto text = with_unit(key, "expected a time with its unit, such as \"500ms\", \"30s\" or \"5min\"");
  if (!text) return;
  auto value = parse_duration(*text);
  if (!value) return error(key, value.error().message);
  auto rounded = std::chrono::ceil<std::chrono::milliseconds>(*value);
  if (rounded > std::chrono::hours(720) || (rounded.count() == 0 && !may_be_zero))
    return error(key, may_be_zero ? "must be at most 720h" : "must be above 0 and at most 720h");
  out = rounded;
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
