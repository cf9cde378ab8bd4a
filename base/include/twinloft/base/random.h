// Source of random bytes: the operating system's in production, a seeded one in tests.
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

// getrandom(2); stops the process where the kernel has none to give.
class OsRandom final : public Random {
 public:
  void fill(MutableByteSpan out) override;
};

// SplitMix64: a run is a pure function of its seed. Not for secrets.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  void fill(MutableByteSpan out) override;
  // Uniform in [0, bound), bound > 0.
  std::uint64_t below(std::uint64_t bound) { return draw() % bound; }
  std::uint64_t draw();

 private:
  std::uint64_t state_;
};

}  // namespace twinloft
