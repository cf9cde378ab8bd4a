#include "twinloft/argv/diagnostic.h"

#include <algorithm>
#include <vector>

namespace twinloft::argv {
namespace {

constexpr std::size_t kWindowChars = 100;

// The length in bytes of the UTF-8 character at the start of `text` (RFC 3629). 0: not a character.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool overlong = lead == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = lead == 0xED && byte(1) > 0x9F;
    return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool overlong = lead == 0xF0 && byte(1) < 0x90;
    const bool beyond = lead == 0xF4 && byte(1) > 0x8F;
    return tail(1) && tail(2) && tail(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

std::string shown(std::string_view character) {
  if (character == "\t") return " ";
  if (character.size() > 1) {
    // Some terminals interpret C1 controls (U+0080..U+009F).
    const bool c1 = character[0] == '\xC2' && static_cast<unsigned char>(character[1]) < 0xA0;
    return c1 ? "?" : std::string(character);
  }
  const auto byte = static_cast<unsigned char>(character[0]);
  return byte < 0x20 || byte >= 0x7F ? "?" : std::string(character);
}

}  // namespace

Diagnostic make_diagnostic(std::string_view text, std::size_t offset, std::string message) {
  Diagnostic d;
  d.message = std::move(message);
  d.offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, d.offset);
  d.line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  const std::size_t newline = before.rfind('\n');
  const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
  std::string_view line = text.substr(start, text.find('\n', start) - start);
  if (line.ends_with('\r') && d.offset - start < line.size()) line.remove_suffix(1);

  std::vector<std::string> characters;
  std::size_t caret = 0;
  for (std::size_t at = 0; at < line.size();) {
    if (start + at < d.offset) ++caret;
    const std::size_t length = std::max<std::size_t>(utf8_length(line.substr(at)), 1);
    characters.push_back(shown(line.substr(at, length)));
    at += length;
  }
  d.column = caret + 1;

  // A part of the line around the position, so that the caret of a long template stays on the screen.
  const std::size_t skip = caret > kWindowChars * 3 / 4 ? caret - kWindowChars * 3 / 4 : 0;
  const std::size_t end = std::min(characters.size(), skip + kWindowChars);
  if (skip > 0) d.excerpt = "...";
  d.caret = caret - skip + d.excerpt.size();
  for (std::size_t i = skip; i < end; ++i) d.excerpt += characters[i];
  if (end < characters.size()) d.excerpt += "...";
  return d;
}

std::string Diagnostic::summary() const {
  std::string out;
  if (line > 1) out = "line " + std::to_string(line) + ", ";
  return out + "column " + std::to_string(column) + ": " + message;
}

std::string Diagnostic::rendered() const {
  return summary() + "\n  " + excerpt + "\n  " + std::string(caret, ' ') + "^\n";
}

}  // namespace twinloft::argv
