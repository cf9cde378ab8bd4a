#include "twinloft/base/crc32c.h"

#include <isa-l/crc.h>

#include "twinloft/base/check.h"

namespace twinloft {

std::uint32_t crc32c(ByteSpan data, std::uint32_t seed) {
  // ISA-L takes the length as an int, and does not invert the CRC itself. Its prototype lacks const, but it
  // does not change the data.
  TL_CHECK(data.size() <= 0x7fffffff);
  auto* p = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data.data()));
  return ~crc32_iscsi(p, static_cast<int>(data.size()), ~seed);
}

}  // namespace twinloft
