// Reading a configuration: the tables of the file, and all errors in it.
#pragma once

#include <fmt/format.h>
#include <sys/un.h>
#include <toml++/toml.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "twinloft/base/suggest.h"
#include "twinloft/base/units.h"
#include "twinloft/spool-repl/net/address.h"

namespace twinloft::repl::daemon {

// All errors, a line each, up to a limit, since a mistake can cause many errors.
class Problems {
 public:
  void add(std::string text) {
    if (std::find(lines_.begin(), lines_.end(), text) == lines_.end()) lines_.push_back(std::move(text));
  }
  Status status() const {
    if (lines_.empty()) return {};
    constexpr std::size_t shown_max = 50;
    std::string all;
    for (std::size_t i = 0; i < std::min(lines_.size(), shown_max); ++i)
      all += (i == 0 ? "" : "\n") + lines_[i];
    if (lines_.size() > shown_max) all += fmt::format("\nand {} more", lines_.size() - shown_max);
    return fail(Errc::invalid, "{}", all);
  }

 private:
  std::vector<std::string> lines_;
};

inline constexpr Duration network_time_min = std::chrono::milliseconds(50);

// A table that is being read. It knows its position for messages, and finds unknown keys. An error is
// recorded, and leaves the variable unchanged.
class Table {
 public:
  Table(const std::string& file, const toml::table& table, std::string path, Problems& problems)
      : file_(file), table_(table), path_(std::move(path)), problems_(problems) {}
  Table(const Table& parent, const toml::table& table, std::string path)
      : Table(parent.file_, table, std::move(path), parent.problems_) {}

  void error(const toml::node* at, std::string_view key, std::string_view what) const {
    auto line = at ? at->source().begin.line : table_.source().begin.line;
    problems_.add(fmt::format("{}:{}: {}{}: {}", file_, line, path_.empty() ? "" : path_ + ".", key, what));
  }

  void allow(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : table_)
      if (std::find(keys.begin(), keys.end(), key.str()) == keys.end())
        error(&value, key.str(),
              "unknown key; " + did_you_mean(key.str(), std::span(keys.begin(), keys.size())));
  }

  void text(std::string_view key, std::string& out, bool required = false) const {
    const toml::node* node = table_.get(key);
    if (!node) return required ? error(nullptr, key, "is missing") : void();
    auto value = node->value_exact<std::string>();
    if (!value || value->find('\0') != std::string::npos)
      return error(node, key, "expected a text in quotes");
    if (required && value->empty()) return error(node, key, "must not be empty");
    out = *value;
  }

  // A text, or a list of up to `most` different ones.
  void texts(std::string_view key, std::vector<std::string>& out, std::size_t most, bool required) const {
    const toml::node* node = table_.get(key);
    const toml::array* list = node ? node->as_array() : nullptr;
    if (!list) {
      std::string one;
      text(key, one, required);
      if (!one.empty()) out = {one};
      return;
    }
    std::vector<std::string> all;
    for (const auto& each : *list) {
      auto value = each.value_exact<std::string>();
      if (!value || value->empty() || value->find('\0') != std::string::npos)
        return error(&each, key, "expected a text in quotes, or a list of such texts");
      if (std::find(all.begin(), all.end(), *value) != all.end())
        return error(&each, key, fmt::format("\"{}\" is in the list twice", *value));
      all.push_back(*value);
    }
    if (all.empty()) return error(node, key, "the list is empty");
    if (all.size() > most) return error(node, key, fmt::format("more than {} in the list", most));
    out = std::move(all);
  }

  void path(std::string_view key, std::string& out, bool required = false) const {
    text(key, out, required);
    if (!out.empty() && out[0] != '/') error(table_.get(key), key, "expected an absolute path");
  }

  void socket_path(std::string_view key, const std::string& path) const {
    constexpr std::size_t longest = sizeof(sockaddr_un::sun_path) - 1;
    if (path.size() > longest)
      error(table_.get(key), key,
            fmt::format("longer than the {} bytes that a socket's path can have", longest));
  }

  void address(std::string_view key, const std::string& value) const {
    if (value.empty()) return;
    if (Status good = net::check_address(value); !good) error(table_.get(key), key, good.error().message);
  }

  void peer_address(std::string_view key, const std::string& value) const {
    if (value.empty()) return;
    if (Status good = net::check_peer_address(value); !good)
      error(table_.get(key), key, good.error().message);
  }

  // For addresses that must not need a name server when they are used.
  void own_address(std::string_view key, const std::string& value) const {
    address(key, value);
    if (!value.empty() && net::check_address(value) && !net::numeric_address(value))
      error(table_.get(key), key,
            fmt::format("\"{}\" is neither unix:/path nor a numeric IP address and a port", value));
  }

  void integer(std::string_view key, std::uint64_t low, std::uint64_t high, auto& out,
               bool required = false) const {
    const toml::node* node = table_.get(key);
    if (!node) return required ? error(nullptr, key, "is missing") : void();
    auto value = node->value_exact<std::int64_t>();
    if (!value || *value < 0 || static_cast<std::uint64_t>(*value) < low ||
        static_cast<std::uint64_t>(*value) > high)
      return error(node, key, fmt::format("expected a number from {} to {}", low, high));
    out = static_cast<std::remove_reference_t<decltype(out)>>(*value);
  }

  void flag(std::string_view key, bool& out) const {
    const toml::node* node = table_.get(key);
    if (!node) return;
    auto value = node->value_exact<bool>();
    if (!value) return error(node, key, "expected true or false");
    out = *value;
  }

  // "512KiB", "20GiB", or a plain number of bytes.
  void size(std::string_view key, std::uint64_t& out) const {
    const toml::node* node = table_.get(key);
    if (!node) return;
    if (!node->is_integer() && !node->is_string())
      return error(node, key,
                   "is not a size: expected a text in quotes, such as \"20GiB\", or a number of bytes");
    auto value = node->is_integer() ? parse_size(std::to_string(node->value_or<std::int64_t>(-1)))
                                    : parse_size(node->value_or<std::string>(""));
    if (!value) return error(node, key, value.error().message);
    if (*value == 0) return error(node, key, "must not be 0");
    out = *value;
  }

  void duration(std::string_view key, Duration& out) const {
    const toml::node* node = table_.get(key);
    if (!node) return;
    if (!node->is_integer() && !node->is_string())
      return error(node, key, "is not a time: expected a text in quotes, such as \"30s\" or \"500ms\"");
    auto value = node->is_integer() ? parse_duration(std::to_string(node->value_or<std::int64_t>(-1)))
                                    : parse_duration(node->value_or<std::string>(""));
    if (!value) return error(node, key, value.error().message);
    if (*value == Duration(0)) return error(node, key, "must not be 0");
    out = *value;
  }

  // With a shorter time, every network would fail.
  void network_time(std::string_view key, Duration& out) const {
    duration(key, out);
    if (out < network_time_min) error(table_.get(key), key, "expected at least \"50ms\"");
  }

  template <class T>
  void choice(std::string_view key, std::initializer_list<std::pair<std::string_view, T>> choices, T& out,
              bool required = false) const {
    const toml::node* node = table_.get(key);
    std::string value;
    text(key, value, required);
    if (!node || !node->is_string()) return;
    std::string names;
    std::vector<std::string_view> known;
    for (const auto& [name, choice] : choices) {
      if (value == name) {
        out = choice;
        return;
      }
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name);
      known.push_back(name);
    }
    auto near = nearest_word(value, known);
    error(
        node, key,
        fmt::format("expected one of {}{}", names, near ? fmt::format("; did you mean \"{}\"?", *near) : ""));
  }

  void texts(std::string_view key, std::vector<std::string>& out) const {
    const toml::node* node = table_.get(key);
    if (!node) return;
    const toml::array* list = node->as_array();
    if (!list) return error(node, key, "expected a list of texts: [\"...\", \"...\"]");
    for (const auto& item : *list) {
      auto value = item.value_exact<std::string>();
      if (!value || value->find('\0') != std::string::npos)
        return error(&item, key, "expected a list of texts: [\"...\", \"...\"]");
      out.push_back(*value);
    }
  }

  // nullptr: none.
  const toml::table* child(std::string_view key) const {
    const toml::node* node = table_.get(key);
    if (node && !node->is_table()) error(node, key, "expected a section in brackets of its own");
    return node ? node->as_table() : nullptr;
  }
  const toml::table& raw() const { return table_; }

 private:
  const std::string& file_;
  const toml::table& table_;
  std::string path_;
  Problems& problems_;
};

}  // namespace twinloft::repl::daemon
