// Shorthands of the argv tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "twinloft/argv/argv.h"
#include "twinloft/base/random.h"

namespace twinloft::argv::test {

using Arguments = Template::Arguments;

inline Template parse(std::string_view text) {
  auto parsed = Template::parse(text);
  if (!parsed) throw std::runtime_error(parsed.error().rendered());
  return *std::move(parsed);
}

inline Diagnostic parse_error(std::string_view text, const ParseOptions& options = {}) {
  auto parsed = Template::parse(text, options);
  if (parsed) throw std::runtime_error("parsed, and should not have: " + std::string(text));
  return parsed.error();
}

inline Arguments expand(std::string_view text, const Values& values = {}) {
  auto arguments = parse(text).expand(values);
  if (!arguments) throw std::runtime_error(arguments.error().message);
  return *std::move(arguments);
}

inline ExpandError expand_error(std::string_view text, const Values& values,
                                const ExpandOptions& options = {}) {
  auto arguments = parse(text).expand(values, options);
  if (arguments) throw std::runtime_error("expanded, and should not have: " + std::string(text));
  return arguments.error();
}

// A value of any allowed bytes. With `bytes_max` 0, it is always empty.
inline std::string random_value(SeededRandom& random, std::size_t bytes_max) {
  static constexpr std::string_view spice[] = {
      "%to%", "%%", "%", "'", "\"", "\\", " ",         "\t",       "$(id)",       "`id`",
      ";",    "|",  "[", "]", "--", "-n", "${run{x}}", "\xff\xfe", "%from:lower%"};
  std::string out;
  const std::size_t length = bytes_max == 0 ? 0 : random.below(bytes_max + 1);
  while (out.size() < length) {
    if (random.below(3) == 0) {
      out += spice[random.below(std::size(spice))];
    } else {
      const auto byte = static_cast<char>(random.below(256));
      if (byte != '\0' && byte != '\r' && byte != '\n') out += byte;
    }
  }
  return out;
}

}  // namespace twinloft::argv::test
