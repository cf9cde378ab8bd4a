// Time and random bytes from the kernel. No other file asks the kernel for them.
#include <sys/random.h>
#include <time.h>

#include <cerrno>

#include "twinloft/base/check.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/random.h"

namespace twinloft {

Instant OsClock::now() const {
  timespec t{};
  TL_CHECK(clock_gettime(CLOCK_BOOTTIME, &t) == 0);
  return {t.tv_sec * 1'000'000'000LL + t.tv_nsec};
}

WallTime OsClock::wall() const {
  timespec t{};
  TL_CHECK(clock_gettime(CLOCK_REALTIME, &t) == 0);
  return {t.tv_sec, static_cast<std::int32_t>(t.tv_nsec / 1000)};
}

void OsRandom::fill(MutableByteSpan out) {
  while (!out.empty()) {
    ssize_t n = getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    TL_CHECK_MSG(n > 0, "getrandom(2) failed");
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

std::uint64_t SeededRandom::draw() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

void SeededRandom::fill(MutableByteSpan out) {
  while (!out.empty()) {
    std::uint64_t word = draw();
    std::size_t n = std::min(out.size(), sizeof word);
    std::memcpy(out.data(), &word, n);
    out = out.subspan(n);
  }
}

}  // namespace twinloft
