// The segments of an intake log in memory.
#pragma once

#include <algorithm>
#include <vector>

#include "twinloft/intake_log/scan.h"

namespace twinloft::intake_log {

class LogDisk final : public SegmentReader {
 public:
  explicit LogDisk(const LogShape& shape)
      : segments(shape.segments, std::vector<std::byte>(shape.segment_bytes)) {}
  Status read(std::uint32_t segment, std::uint64_t offset, MutableByteSpan out) const override {
    bytes_read += out.size();
    const auto& bytes = segments.at(segment);
    if (reinterpret_cast<std::uintptr_t>(out.data()) % block_bytes != 0 || offset % block_bytes != 0 ||
        out.size() % block_bytes != 0)
      return fail(Errc::internal, "not aligned");
    if (offset + out.size() > bytes.size())
      return fail(Errc::corrupt, "segment-{:02} ends at {}", segment, bytes.size());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  void write(Position at, ByteSpan bytes) { std::ranges::copy(bytes, place(at)); }
  // A write that a power cut ends: each sector is there or not.
  template <class Random>
  void tear(Position at, ByteSpan bytes, Random& random) {
    constexpr std::size_t sector = 512;
    for (std::size_t i = 0; i < bytes.size(); i += sector)
      if (random.below(3) != 0)
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(i), sector,
                    place(at) + static_cast<std::ptrdiff_t>(i));
  }

  std::vector<std::vector<std::byte>> segments;
  mutable std::uint64_t bytes_read = 0;

 private:
  std::vector<std::byte>::iterator place(Position at) {
    return segments.at(at.segment).begin() + static_cast<std::ptrdiff_t>(at.offset);
  }
};

}  // namespace twinloft::intake_log
