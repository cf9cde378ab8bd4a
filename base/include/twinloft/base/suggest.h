// "Did you mean": suggestions for an unknown word.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace twinloft {

// The known word with the fewest differences. Nothing: every known word differs too much.
std::optional<std::string_view> nearest_word(std::string_view word, std::span<const std::string_view> known);

// `did you mean "x"?`, or without such a word `known here: a, b, c`.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace twinloft
