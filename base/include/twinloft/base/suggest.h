// "Did you mean": what to say of a word that is none of the known ones.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace twinloft {

// The known word that is nearest; nullopt where none is near enough to be meant.
std::optional<std::string_view> nearest_word(std::string_view word, std::span<const std::string_view> known);

// `did you mean "x"?`, or else `known here: a, b, c`.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace twinloft
