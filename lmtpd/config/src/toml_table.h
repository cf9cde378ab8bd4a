// A table of a TOML file. Errors are collected with file, line and key, so that the administrator sees all of
// them at once. A wrong value leaves its target unchanged.
#pragma once

#include <toml++/toml.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace twinloft::lmtpd {

// The greatest integer of TOML.
constexpr std::uint64_t no_bound = std::numeric_limits<std::int64_t>::max();

struct Problems {
  std::string file;
  std::vector<std::string> errors;
  std::vector<std::string> warnings{};
  std::set<std::string> sections{};  // with errors; also the names of keys outside of sections
};

class TomlTable {
 public:
  TomlTable(Problems& problems, const toml::table& table, std::string path)
      : problems_(problems), table_(table), path_(std::move(path)) {}

  // "file:line: path.key"
  std::string place(std::string_view key) const;
  void error(std::string_view key, std::string_view what) const;
  // what: the expected words, for the error, which also names the most similar word of `known`.
  void wrong_word(std::string_view key, std::string_view what, std::string_view word,
                  std::initializer_list<std::string_view> known) const;
  void warning(std::string_view key, std::string_view what) const;
  bool has(std::string_view key) const { return table_.contains(key); }

  // Every other key is an error, which names the most similar known key.
  void allow(std::span<const std::string_view> keys, std::initializer_list<std::string_view> more) const;
  void allow(std::initializer_list<std::string_view> keys) const { allow({}, keys); }

  void text(std::string_view key, std::string& out, bool required = false) const;
  void path(std::string_view key, std::string& out, bool required = false) const;  // absolute
  void texts(std::string_view key, std::vector<std::string>& out) const;
  void flag(std::string_view key, bool& out) const;
  template <class T>
  void number(std::string_view key, std::uint64_t low, std::uint64_t high, T& out) const {
    std::uint64_t value = out;
    if (read_number(key, low, high, value)) out = static_cast<T>(value);
  }
  // The form is that of base/units.h.
  void size(std::string_view key, std::uint64_t low, std::uint64_t high, std::uint64_t& out) const;
  void duration(std::string_view key, std::chrono::milliseconds& out, bool may_be_zero = false) const;
  // A user or group: a name, or a number written with or without quotes.
  void identity(std::string_view key, std::string& out) const;

  // The table under `key`, or null; another type is an error.
  const toml::table* child(std::string_view key) const;
  const toml::table& raw() const { return table_; }
  const std::string& where() const { return path_; }
  Problems& problems() const { return problems_; }

 private:
  bool read_number(std::string_view key, std::uint64_t low, std::uint64_t high, std::uint64_t& out) const;
  // A text or a whole number, as text. Any other value is an error. Without a value: nothing.
  std::optional<std::string> with_unit(std::string_view key, std::string_view expected) const;

  Problems& problems_;
  const toml::table& table_;
  std::string path_;
};

}  // namespace twinloft::lmtpd
