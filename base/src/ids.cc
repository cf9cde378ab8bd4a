#include "twinloft/base/ids.h"

#include "twinloft/base/hash.h"

namespace twinloft {

std::string Uuid::text() const {
  std::string hex = to_hex(bytes);
  for (std::size_t at : {8, 13, 18, 23}) hex.insert(at, "-");
  return hex;
}

namespace {
int nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
}  // namespace

Result<Uuid> Uuid::parse(std::string_view text) {
  auto bad = [&] {
    return fail(Errc::invalid, "\"{}\" is not a UUID (expected 8-4-4-4-12 hexadecimal digits)", text);
  };
  if (text.size() != 36) return bad();
  Uuid out;
  std::size_t digit = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (text[i] != '-') return bad();
      continue;
    }
    int value = nibble(text[i]);
    if (value < 0) return bad();
    out.bytes[digit / 2] |= static_cast<std::byte>(digit % 2 ? value : value << 4);
    ++digit;
  }
  return out;
}

Uuid Uuid::generate(Random& random) {
  Uuid out;
  random.fill(out.bytes);
  out.bytes[6] = (out.bytes[6] & std::byte{0x0f}) | std::byte{0x40};
  out.bytes[8] = (out.bytes[8] & std::byte{0x3f}) | std::byte{0x80};
  return out;
}

}  // namespace twinloft
