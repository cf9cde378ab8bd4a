// Common parts of the programs that print tables of figures.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::bench {

// The median, and the smallest and the largest value.
inline std::string spread(std::vector<double> all, int digits) {
  std::sort(all.begin(), all.end());
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", all[all.size() / 2], digits, all.front(), digits,
                     all.back(), digits);
}

// Parses "1,3,13". Each number is from 1 to `max`.
inline Result<std::vector<std::size_t>> numbers(const std::string& text, std::size_t max) {
  std::vector<std::size_t> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    out.push_back(std::strtoul(word.c_str(), nullptr, 10));
    if (out.back() == 0 || out.back() > max) return fail(Errc::invalid, "{}: from 1 to {}", word, max);
  }
  return out;
}

}  // namespace twinloft::bench
