#include "twinloft/spool-repl/format/digest.h"

#include <algorithm>
#include <bit>
#include <utility>

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

// ---- the table -----------------------------------------------------------------------------------------------------

DigestTable::DigestTable(const Uuid& volume, std::uint64_t volume_blocks)
    : volume_(volume), digests_(volume_blocks, digest_unknown), is_changed_((digest_pages(volume_blocks) + 63) / 64) {}

std::span<Digest> DigestTable::of_page(std::uint64_t page) {
  std::span rest = std::span(digests_).subspan(page * digest_page_blocks);
  return rest.first(std::min<std::size_t>(rest.size(), digest_page_blocks));
}

void DigestTable::change(std::uint64_t page) {
  std::uint64_t bit = std::uint64_t{1} << page % 64;
  if (is_changed_[page / 64] & bit) return;
  is_changed_[page / 64] |= bit;
  ++changed_;
  first_changed_ = std::min(first_changed_, page);
}

unsigned DigestTable::load(std::uint64_t page, ByteSpan bytes) {
  unsigned lost = decode_digest_page(bytes, volume_, page, of_page(page));
  if (lost > 0) change(page);
  return lost;
}

void DigestTable::put(Lba lba, const std::byte* block) {
  if (digests_.empty()) return;
  Digest digest = digest_of(volume_, lba, {block, block_size});
  if (std::exchange(digests_[lba.v], digest) != digest) change(lba.v / digest_page_blocks);
}

void DigestTable::put_zeros(Lba lba, std::uint64_t blocks) {
  if (digests_.empty()) return;
  for (std::uint64_t at = lba.v, end = lba.v + blocks; at < end;) {
    std::uint64_t page = at / digest_page_blocks, upto = std::min(end, (page + 1) * digest_page_blocks);
    std::span changing = std::span(digests_).subspan(at, upto - at);
    if (std::any_of(changing.begin(), changing.end(), [](Digest d) { return d != digest_zeros; })) change(page);
    std::fill(changing.begin(), changing.end(), digest_zeros);
    at = upto;
  }
}

bool DigestTable::fits(Lba lba, const std::byte* block) const {
  return digests_.empty() || digest_fits(digests_[lba.v], volume_, lba, {block, block_size});
}

void DigestTable::forget() {
  std::fill(digests_.begin(), digests_.end(), digest_unknown);
  for (std::uint64_t page = 0; page < digest_pages(digests_.size()); ++page) change(page);
}

std::vector<DigestTable::Pages> DigestTable::take_changed(std::size_t runs_max) {
  constexpr std::size_t run_bytes_max = 64 * block_size;
  std::vector<Pages> runs;
  std::uint64_t& page = first_changed_;
  while (changed_ > 0) {
    std::uint64_t rest = is_changed_[page / 64] >> page % 64;
    if (rest == 0) {
      page = (page / 64 + 1) * 64;
      continue;
    }
    page += static_cast<unsigned>(std::countr_zero(rest));
    bool goes_on = !runs.empty() && runs.back().bytes.size() < run_bytes_max && runs.back().first + runs.back().bytes.size() / block_size == page;
    if (!goes_on && runs.size() == runs_max) break;
    std::vector<std::byte>& bytes = goes_on ? runs.back().bytes : runs.emplace_back(Pages{page, {}}).bytes;
    bytes.resize(bytes.size() + block_size);
    encode_digest_page(volume_, page, of_page(page), MutableByteSpan(bytes).last(block_size));
    is_changed_[page / 64] &= is_changed_[page / 64] - 1;  // it is the lowest
    --changed_;
    ++page;
  }
  return runs;
}

}  // namespace twinloft::repl
