// Random bytes as an interface: from the kernel in production, from a seed in tests.
#pragma once

#include <cstdint>

#include "twinloft/base/bytes.h"

namespace twinloft {

class Random {
 public:
  virtual ~Random() = default;
  virtual void fill(MutableByteSpan out) = 0;
  std::uint64_t next() {
    std::array<std::byte, 8> b;
    fill(b);
    return load_le<std::uint64_t>(b.data());
  }
};

// getrandom(2). A failure stops the process.
class OsRandom final : public Random {
 public:
  void fill(MutableByteSpan out) override;
};

// SplitMix64: the bytes are a pure function of the seed, and can be predicted. Not for secrets.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  void fill(MutableByteSpan out) override;
  // In [0, bound), nearly uniform for a small bound. `bound` is at least 1.
  std::uint64_t below(std::uint64_t bound) { return draw() % bound; }
  std::uint64_t draw();

 private:
  std::uint64_t state_;
};

}  // namespace twinloft
