// The frames of a link that may be compressed. docs/formats/wire.md has the bytes.
//
// A frame can be decoded alone, so the codec may change between two frames, and threads work on several.
#pragma once

#include <array>
#include <cstdint>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/compress/setting.h"

namespace twinloft::repl::compress {

inline constexpr std::size_t header_bytes = 12;
inline constexpr std::size_t raw_bytes_max = 256 << 10;  // content of a frame

struct FrameHeader {
  Codec codec = Codec::none;
  std::uint32_t raw_bytes = 0;     // 1 to raw_bytes_max
  std::uint32_t packed_bytes = 0;  // behind the header. Codec::none: raw_bytes. Others: fewer
  bool operator==(const FrameHeader&) const = default;
};

std::array<std::byte, header_bytes> encode_frame_header(const FrameHeader& header);
// in: of header_bytes. accepted: what this side has offered. Errors: Errc::corrupt (not such a header),
// Errc::denied (another codec).
Result<FrameHeader> decode_frame_header(ByteSpan in, CodecSet accepted);

}  // namespace twinloft::repl::compress
