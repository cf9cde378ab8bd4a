// Byte spans, and little-endian encoding with bounds checks.
//
// Every integer of Twinloft on a disk and on the wire is little-endian. A Writer appends to a vector. A
// Reader never reads past its span: after the first short read, `ok()` is false and every value is zero, so a
// decoder checks once at its end.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace twinloft {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline ByteSpan as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view as_text(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

static_assert(std::endian::native == std::endian::little, "encoders copy integers in the order of memory");

template <std::unsigned_integral T>
void store_le(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <std::unsigned_integral T>
T load_le(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}

  template <std::unsigned_integral T>
  void put(T value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), p, p + sizeof value);
  }
  void put_bytes(ByteSpan bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  // The length as a 32-bit integer, then the text.
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_bytes(as_bytes(text));
  }
  void put_zeros(std::size_t count) { out_.insert(out_.end(), count, std::byte{0}); }

 private:
  std::vector<std::byte>& out_;
};

class Reader {
 public:
  explicit Reader(ByteSpan in) : in_(in) {}

  template <std::unsigned_integral T>
  T get() {
    if (!take(sizeof(T))) return 0;
    return load_le<T>(in_.data() + at_ - sizeof(T));
  }
  ByteSpan get_bytes(std::size_t count) {
    if (!take(count)) return {};
    return in_.subspan(at_ - count, count);
  }
  template <std::size_t N>
  void get_into(std::array<std::byte, N>& out) {
    ByteSpan b = get_bytes(N);
    if (b.size() == N) std::memcpy(out.data(), b.data(), N);
  }
  // A text of put_text(). Nothing, and ok() is false from then on, if the text is longer than `most` bytes or
  // than the rest of the span.
  std::optional<std::string_view> get_text(std::size_t most) {
    auto bytes = get<std::uint32_t>();
    if (bytes > most) ok_ = false;
    ByteSpan text = get_bytes(bytes);
    if (!ok_) return std::nullopt;
    return as_text(text);
  }
  void skip(std::size_t count) { (void)take(count); }
  std::size_t remaining() const { return in_.size() - at_; }
  bool ok() const { return ok_; }

 private:
  bool take(std::size_t count) {
    if (!ok_ || in_.size() - at_ < count) return ok_ = false;
    at_ += count;
    return true;
  }
  ByteSpan in_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace twinloft
