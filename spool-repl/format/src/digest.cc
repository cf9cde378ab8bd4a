#include "twinloft/spool-repl/format/digest.h"

#include <algorithm>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/spool-repl/format/record.h"

namespace twinloft::repl {

namespace {

constexpr std::size_t sector_crc_at = digest_sector_bytes - 4;

std::uint32_t sector_crc(const Uuid& volume, std::uint64_t sector, ByteSpan bytes) {
  std::byte seed[24];
  std::memcpy(seed, volume.bytes.data(), 16);
  store_le(seed + 16, sector);
  return crc32c(bytes.first(sector_crc_at), crc32c(seed));
}

bool is_zero(ByteSpan block) {
  return block[0] == std::byte{0} && std::memcmp(block.data(), block.data() + 1, block.size() - 1) == 0;
}

}  // namespace

Digest digest_of(const Uuid& volume, Lba lba, ByteSpan block) {
  std::uint32_t crc = block_crc(volume, lba, block);
  return crc <= digest_zeros ? crc + 2 : crc;
}

bool digest_fits(Digest digest, const Uuid& volume, Lba lba, ByteSpan block) {
  if (digest == digest_unknown) return true;
  if (digest == digest_zeros) return is_zero(block);
  return digest == digest_of(volume, lba, block);
}

void encode_digest_page(const Uuid& volume, std::uint64_t page, std::span<const Digest> digests, MutableByteSpan out) {
  TL_CHECK(out.size() == block_size && digests.size() <= digest_page_blocks);
  std::memset(out.data(), 0, out.size());
  for (std::size_t s = 0; s < block_size / digest_sector_bytes; ++s) {
    MutableByteSpan sector = out.subspan(s * digest_sector_bytes, digest_sector_bytes);
    std::size_t first = std::min(s * digest_sector_blocks, digests.size());
    std::span of_sector = digests.subspan(first, std::min<std::size_t>(digest_sector_blocks, digests.size() - first));
    for (std::size_t i = 0; i < of_sector.size(); ++i) store_le(sector.data() + i * 4, of_sector[i]);
    store_le(sector.data() + sector_crc_at, sector_crc(volume, page * (block_size / digest_sector_bytes) + s, sector));
  }
}

unsigned decode_digest_page(ByteSpan in, const Uuid& volume, std::uint64_t page, std::span<Digest> digests) {
  TL_CHECK(in.size() == block_size && digests.size() <= digest_page_blocks);
  unsigned lost = 0;
  for (std::size_t s = 0; s * digest_sector_blocks < digests.size(); ++s) {
    ByteSpan sector = in.subspan(s * digest_sector_bytes, digest_sector_bytes);
    bool right = load_le<std::uint32_t>(sector.data() + sector_crc_at) ==
                 sector_crc(volume, page * (block_size / digest_sector_bytes) + s, sector);
    std::size_t first = s * digest_sector_blocks, end = std::min(first + digest_sector_blocks, digests.size());
    for (std::size_t i = first; i < end; ++i)
      digests[i] = right ? load_le<std::uint32_t>(sector.data() + (i - first) * 4) : digest_unknown;
    lost += !right;
  }
  return lost;
}

}  // namespace twinloft::repl
