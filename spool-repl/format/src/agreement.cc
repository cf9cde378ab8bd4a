#include "twinloft/spool-repl/format/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/check.h"
#include "twinloft/base/hash.h"

namespace twinloft::repl {

namespace {

constexpr std::size_t value_bytes_max = 240;
constexpr std::size_t told_bytes_max = 600;  // of the result, which is a line of the log

std::string printable(std::string_view text) {
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return out;
}

std::vector<std::pair<std::string, std::string>> lines_of(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> lines;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::size_t equals = std::min(line.find('='), line.size());
    lines.emplace_back(printable(line.substr(0, equals)),
                       printable(line.substr(std::min(line.size(), equals + 1))));
  }
  return lines;
}

}  // namespace

void Agreement::add(std::string_view key, std::string_view value) {
  std::string shown = printable(value.substr(0, value_bytes_max));
  if (value.size() > value_bytes_max)
    shown += fmt::format("... ({})", to_hex(hash128(as_bytes(value)).bytes));
  text_ += fmt::format("{}={}\n", key, shown);
  TL_CHECK(text_.size() <= agreement_bytes_max);
}

std::string arbiter_lines(std::string_view agreement) {
  std::string out;
  for (const auto& [key, value] : lines_of(agreement))
    if (key.starts_with("arbiter.")) out += fmt::format("{}={}\n", key, value);
  return out;
}

std::string disagreement(std::string_view here, std::string_view there) {
  if (here == there) return "";
  auto ours = lines_of(here), theirs = lines_of(there);
  auto value_in = [](const auto& lines, const std::string& key) -> const std::string* {
    auto it = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == key; });
    return it == lines.end() ? nullptr : &it->second;
  };
  std::string text;
  auto tell = [&](const std::string& key, const std::string* mine, const std::string* other) {
    auto word = [](const std::string* value) {
      return value ? "\"" + *value + "\"" : std::string("not known");
    };
    text += fmt::format("{}{} is {} here and {} there", text.empty() ? "" : ", ", key, word(mine),
                        word(other));
  };
  for (const auto& [key, value] : ours)
    if (const std::string* other = value_in(theirs, key); !other || *other != value) tell(key, &value, other);
  for (const auto& [key, value] : theirs)
    if (!value_in(ours, key)) tell(key, nullptr, &value);
  // No value differs, but the lists have a repeated key or another order: the releases differ.
  if (text.empty() && here != there)
    return "the lists of settings that must agree have different formats: run the same release on both";
  if (text.size() > told_bytes_max) text = text.substr(0, told_bytes_max) + "...";
  return text;
}

}  // namespace twinloft::repl
