// CRC32C (Castagnoli, RFC 3720 appendix B.4), by ISA-L.
#pragma once

#include <cstdint>

#include "twinloft/base/bytes.h"

namespace twinloft {
// crc32c("123456789") == 0xe3069283. seed: 0, or the result for the bytes before `data`.
std::uint32_t crc32c(ByteSpan data, std::uint32_t seed = 0);
}  // namespace twinloft
