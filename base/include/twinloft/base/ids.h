// 128-bit identifiers, printed as RFC 9562 UUIDs.
#pragma once

#include <array>
#include <compare>
#include <string>
#include <string_view>

#include "twinloft/base/bytes.h"
#include "twinloft/base/random.h"
#include "twinloft/base/result.h"

namespace twinloft {

struct Uuid {
  std::array<std::byte, 16> bytes{};
  auto operator<=>(const Uuid&) const = default;
  bool is_nil() const { return *this == Uuid{}; }
  std::string text() const;  // 8-4-4-4-12 digits, lower case
  // Digits of either case. Errors: Errc::invalid.
  static Result<Uuid> parse(std::string_view text);
  static Uuid generate(Random& random);  // version 4
};

}  // namespace twinloft
