// How a link compresses: the `compression` of a peer in the configuration.
//
//   "none", "adaptive", "zstd", or with a level "zstd:9"
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "twinloft/base/result.h"

namespace twinloft::repl::compress {

// The numbers are those of the wire (docs/formats/wire.md).
enum class Codec : std::uint8_t { none = 0, lz4 = 1, zstd = 2, zlib = 3, xz = 4 };
inline constexpr std::array all_codecs{Codec::none, Codec::lz4, Codec::zstd, Codec::zlib, Codec::xz};
const char* name_of(Codec codec);

// Codecs by their bits. `none` is always a member.
class CodecSet {
 public:
  constexpr CodecSet() = default;
  constexpr explicit CodecSet(std::uint64_t bits) : bits_(bits | 1) {}
  static constexpr CodecSet all() { return CodecSet(0b11111); }
  constexpr bool has(Codec c) const { return (bits_ >> static_cast<unsigned>(c) & 1) != 0; }
  constexpr std::uint64_t bits() const { return bits_; }

 private:
  std::uint64_t bits_ = 1;
};

struct Method {
  Codec codec = Codec::none;
  int level = 0;  // 0: the default of default_level()
  bool operator==(const Method&) const = default;
};
int default_level(Codec codec);  // 0: the codec has no levels

// The codec changes with the measured speeds of line and processor (chooser.h).
struct Adaptive {
  bool operator==(const Adaptive&) const = default;
};
using Setting = std::variant<Method, Adaptive>;

// Errors: Errc::invalid (an unknown codec, or a level that it does not have).
Result<Setting> parse_setting(std::string_view text);
std::string text_of(const Setting& setting);

}  // namespace twinloft::repl::compress
