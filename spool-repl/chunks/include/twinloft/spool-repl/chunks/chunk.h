// The chunks of a link that has several paths. docs/formats/wire.md has the bytes.
//
// A chunk is a header, and for some kinds bytes behind it. Its header tells also how far the other direction
// is.
#pragma once

#include <array>
#include <cstdint>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::chunks {

inline constexpr std::size_t chunk_header_bytes = 28;
inline constexpr std::uint32_t chunk_bytes_max = 256u << 10;   // behind a header
inline constexpr std::uint32_t path_trial_bytes = 128u << 10;  // more than the largest packet
inline constexpr std::size_t paths_window_bytes = 16u << 20;   // sent, and not yet taken by the owner
                                                               // of the other side
inline constexpr std::size_t paths_unsent_bytes = 512u << 10;  // that no path has accepted

struct ChunkHeader {
  enum class Kind : std::uint8_t { data = 1, ping = 2, trial = 3, trial_taken = 4, end = 5, leave = 6 };
  Kind kind = Kind::ping;
  std::uint32_t bytes = 0;     // behind the header. data: 1 to chunk_bytes_max. trial: path_trial_bytes
  std::uint64_t position = 0;  // data: of its first byte in the link's output. end: of the end
  std::uint64_t taken = 0;     // the sender's owner has read the link's input up to this position
  bool operator==(const ChunkHeader&) const = default;
};

std::array<std::byte, chunk_header_bytes> encode_chunk_header(const ChunkHeader& header);
// in: of chunk_header_bytes. Errors: Errc::corrupt.
Result<ChunkHeader> decode_chunk_header(ByteSpan in);

}  // namespace twinloft::repl::chunks
