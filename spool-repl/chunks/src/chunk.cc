#include "twinloft/spool-repl/chunks/chunk.h"

#include <fmt/format.h>

#include "twinloft/base/crc32c.h"

namespace twinloft::repl::chunks {

namespace {

constexpr std::size_t crc_at = chunk_header_bytes - 4;

bool fits(const ChunkHeader& h) {
  using Kind = ChunkHeader::Kind;
  switch (h.kind) {
    case Kind::data:
      return h.bytes > 0 && h.bytes <= chunk_bytes_max && h.position <= UINT64_MAX - h.bytes;
    case Kind::trial:
      return h.bytes == path_trial_bytes && h.position == 0;
    case Kind::ping:
    case Kind::trial_taken:
    case Kind::leave:
      return h.bytes == 0 && h.position == 0;
    case Kind::end:
      return h.bytes == 0;
  }
  return false;
}

}  // namespace

std::array<std::byte, chunk_header_bytes> encode_chunk_header(const ChunkHeader& h) {
  std::array<std::byte, chunk_header_bytes> out{};
  store_le(out.data(), static_cast<std::uint8_t>(h.kind));
  store_le(out.data() + 4, h.bytes);
  store_le(out.data() + 8, h.position);
  store_le(out.data() + 16, h.taken);
  store_le(out.data() + crc_at, crc32c(ByteSpan(out).first(crc_at)));
  return out;
}

Result<ChunkHeader> decode_chunk_header(ByteSpan in) {
  Reader r(in);
  ChunkHeader h;
  h.kind = static_cast<ChunkHeader::Kind>(r.get<std::uint8_t>());
  auto reserved = r.get<std::uint8_t>();
  auto reserved_too = r.get<std::uint16_t>();
  h.bytes = r.get<std::uint32_t>();
  h.position = r.get<std::uint64_t>();
  h.taken = r.get<std::uint64_t>();
  auto crc = r.get<std::uint32_t>();
  if (!r.ok() || crc != crc32c(in.first(crc_at))) return fail(Errc::corrupt, "bytes that are no chunk");
  if (reserved != 0 || reserved_too != 0 || !fits(h))
    return fail(Errc::corrupt, "a chunk of kind {} with {} bytes at {}", static_cast<unsigned>(h.kind),
                h.bytes, h.position);
  return h;
}

}  // namespace twinloft::repl::chunks
