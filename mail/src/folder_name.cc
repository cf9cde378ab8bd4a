#include "twinloft/mail/folder_name.h"

#include <algorithm>
#include <cstdint>

#include "twinloft/base/utf8.h"

namespace twinloft::mail {

namespace {

constexpr std::size_t levels_max = 16;
constexpr std::size_t name_bytes_max = 255;

// Base64 with "," for "/", without padding.
class Base64 {
 public:
  explicit Base64(std::string& out) : out_(out) {}
  void put16(std::uint32_t unit) {
    bits_ = (bits_ << 16) | unit;
    for (held_ += 16; held_ >= 6; held_ -= 6) put6(bits_ >> (held_ - 6));
  }
  void finish() {
    if (held_ > 0) put6(bits_ << (6 - held_));
  }

 private:
  void put6(std::uint32_t value) {
    out_ += "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,"[value & 63];
  }
  std::string& out_;
  std::uint32_t bits_ = 0;  // the newest 32 bits, of which held_ are not written yet
  int held_ = 0;
};

bool is_direct(char c) {
  return c >= ' ' && c <= '~';
}

char32_t decode(std::string_view character) {
  char32_t out = static_cast<unsigned char>(character[0]);
  if (character.size() > 1) out &= 0x7FU >> character.size();
  for (char c : character.substr(1)) out = (out << 6) | (static_cast<unsigned char>(c) & 0x3FU);
  return out;
}

// Encodes a run of characters that need encoding. Returns the rest of the text.
std::string_view encode_run(std::string_view text, std::string& out) {
  out += '&';
  Base64 base64(out);
  while (!text.empty() && !is_direct(text[0])) {
    std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
    char32_t c = decode(text.substr(0, length));
    if (c < 0x10000) {
      base64.put16(c);
    } else {
      base64.put16(0xD800 + ((c - 0x10000) >> 10));
      base64.put16(0xDC00 + ((c - 0x10000) & 0x3FF));
    }
    text.remove_prefix(length);
  }
  base64.finish();
  out += '-';
  return text;
}

bool equals_inbox(std::string_view text) {
  constexpr std::string_view inbox = "inbox";
  return std::ranges::equal(text, inbox,
                            [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

bool is_level(std::string_view level) {
  if (level.empty() || level.front() == '~') return false;
  return std::ranges::none_of(level, [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f' || c == '.' || c == '/' || c == '*' || c == '%';
  });
}

}  // namespace

std::string encode_mutf7(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    if (!is_direct(name[0])) {
      name = encode_run(name, out);
      continue;
    }
    out += name[0];
    if (name[0] == '&') out += '-';
    name.remove_prefix(1);
  }
  return out;
}

std::optional<std::string> folder_directory(std::string_view detail, char separator) {
  if (!is_clean_utf8(detail)) return std::nullopt;
  std::string out;
  for (std::size_t levels = 1;; ++levels) {
    std::size_t end = std::min(detail.find(separator), detail.size());
    std::string_view level = detail.substr(0, end);
    if (levels > levels_max || !is_level(level) || (levels == 1 && equals_inbox(level))) return std::nullopt;
    out += '.';
    out += encode_mutf7(level);
    if (end == detail.size()) break;
    detail.remove_prefix(end + 1);
  }
  return out.size() <= name_bytes_max ? std::optional(std::move(out)) : std::nullopt;
}

Result<std::string> quota_folder(std::string_view name, char separator) {
  auto directory = folder_directory(name, separator);
  if (!directory) return fail(Errc::invalid, "\"{}\" is the name of no folder below the inbox", name);
  return *directory;
}

}  // namespace twinloft::mail
