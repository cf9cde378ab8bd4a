// CRC32C (Castagnoli, RFC 3720 appendix B.4), by ISA-L.
#pragma once

#include <cstdint>

#include "twinloft/base/bytes.h"

namespace twinloft {
// crc32c("123456789") == 0xe3069283. To go on with a longer message pass the
// value returned for what came before as `seed`.
std::uint32_t crc32c(ByteSpan data, std::uint32_t seed = 0);
}  // namespace twinloft
