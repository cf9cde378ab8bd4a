// Text with repetitions, as mail has: codecs make about half of it.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace twinloft::repl {

inline std::vector<std::byte> some_text(std::size_t bytes, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    out[i] = i > 64 && random() % 4 != 0 ? out[i - 64] : std::byte('a' + random() % 26);
  return out;
}

}  // namespace twinloft::repl
