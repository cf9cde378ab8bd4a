// XXH3-128, a hash of 128 bits, of a whole buffer or of pieces. It is not cryptographic: it detects
// accidental changes, but no attacks.
#pragma once

#include <array>
#include <compare>
#include <memory>
#include <string>

#include "twinloft/base/bytes.h"

namespace twinloft {

struct Hash128 {
  std::array<std::byte, 16> bytes{};
  auto operator<=>(const Hash128&) const = default;
  std::string hex() const;
};

Hash128 hash128(ByteSpan data);

class Hasher128 {
 public:
  Hasher128();
  ~Hasher128();
  Hasher128(const Hasher128&) = delete;
  Hasher128& operator=(const Hasher128&) = delete;
  void reset();
  void update(ByteSpan data);
  Hash128 digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string to_hex(ByteSpan bytes);

}  // namespace twinloft
