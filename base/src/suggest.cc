#include "twinloft/base/suggest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace twinloft {

namespace {

// Levenshtein's distance.
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

}  // namespace

std::optional<std::string_view> nearest_word(std::string_view word, std::span<const std::string_view> known) {
  constexpr std::size_t word_bytes_max = 200;  // longer words resemble no known word
  if (known.empty() || word.size() > word_bytes_max) return std::nullopt;
  // The word abbreviates exactly one known word.
  constexpr std::size_t beginning_bytes_min = 3;
  auto begins = [&](std::string_view k) { return word.size() >= beginning_bytes_min && k.starts_with(word); };
  if (std::ranges::count_if(known, begins) == 1) return *std::ranges::find_if(known, begins);
  auto nearest = std::ranges::min_element(known, {}, [&](std::string_view k) { return distance(word, k); });
  std::size_t far = std::max<std::size_t>(std::min<std::size_t>(2, word.size() / 2), word.size() / 3);
  if (distance(word, *nearest) > far) return std::nullopt;
  return *nearest;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  if (auto nearest = nearest_word(word, known)) return fmt::format("did you mean \"{}\"?", *nearest);
  return fmt::format("known here: {}", fmt::join(known, ", "));
}

}  // namespace twinloft
