#include "twinloft/spool-repl/format/digest.h"

#include <algorithm>
#include <bit>

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

}  // namespace

bool is_zero(ByteSpan block) {
  return block[0] == std::byte{0} && std::memcmp(block.data(), block.data() + 1, block.size() - 1) == 0;
}

Digest digest_of(const Uuid& volume, Lba lba, ByteSpan block) {
  std::uint32_t crc = block_crc(volume, lba, block);
  return crc <= digest_zeros ? crc + 2 : crc;
}

bool digest_fits(Digest digest, const Uuid& volume, Lba lba, ByteSpan block) {
  if (digest == digest_unknown) return true;
  if (digest == digest_zeros) return is_zero(block);
  return digest == digest_of(volume, lba, block);
}

void encode_digest_page(const Uuid& volume, std::uint64_t page, std::span<const Digest> digests,
                        MutableByteSpan out) {
  TL_CHECK(out.size() == block_size && digests.size() <= digest_page_blocks);
  std::memset(out.data(), 0, out.size());
  for (std::size_t s = 0; s < block_size / digest_sector_bytes; ++s) {
    MutableByteSpan sector = out.subspan(s * digest_sector_bytes, digest_sector_bytes);
    std::size_t first = std::min(s * digest_sector_blocks, digests.size());
    std::span of_sector = digests.subspan(
        first, std::min<std::size_t>(digest_sector_blocks, digests.size() - first));
    for (std::size_t i = 0; i < of_sector.size(); ++i) store_le(sector.data() + i * 4, of_sector[i]);
    store_le(sector.data() + sector_crc_at,
             sector_crc(volume, page * (block_size / digest_sector_bytes) + s, sector));
  }
}

unsigned decode_digest_page(ByteSpan in, const Uuid& volume, std::uint64_t page, std::span<Digest> digests) {
  TL_CHECK(in.size() == block_size && digests.size() <= digest_page_blocks);
  unsigned lost = 0;
  for (std::size_t s = 0; s * digest_sector_blocks < digests.size(); ++s) {
    ByteSpan sector = in.subspan(s * digest_sector_bytes, digest_sector_bytes);
    bool right = load_le<std::uint32_t>(sector.data() + sector_crc_at) ==
                 sector_crc(volume, page * (block_size / digest_sector_bytes) + s, sector);
    std::size_t first = s * digest_sector_blocks,
                end = std::min(first + digest_sector_blocks, digests.size());
    for (std::size_t i = first; i < end; ++i)
      digests[i] = right ? load_le<std::uint32_t>(sector.data() + (i - first) * 4) : digest_unknown;
    lost += !right;
  }
  return lost;
}

// ---- the table

DigestTable::DigestTable(const Uuid& volume, std::uint64_t volume_blocks)
    : volume_(volume),
      blocks_(volume_blocks),
      pages_(digest_pages(volume_blocks)),
      is_changed_((pages_.size() + 63) / 64) {}

std::uint64_t DigestTable::memory_max(std::uint64_t volume_blocks) {
  return digest_pages(volume_blocks) * (sizeof(Page) + digest_page_blocks * sizeof(Digest));
}

std::uint64_t DigestTable::memory() const {
  return pages_.size() * sizeof(Page) + pages_with_each_ * digest_page_blocks * sizeof(Digest);
}

Digest DigestTable::at(std::uint64_t block) const {
  const Page& page = pages_[block / digest_page_blocks];
  return page.each ? page.each[block % digest_page_blocks] : page.all;
}

Digest* DigestTable::each(Page& page) {
  if (!page.each) {
    page.each = std::make_unique<Digest[]>(digest_page_blocks);
    std::fill_n(page.each.get(), digest_page_blocks, page.all);
    ++pages_with_each_;
  }
  return page.each.get();
}

void DigestTable::set_all(std::uint64_t page, Digest digest) {
  pages_with_each_ -= pages_[page].each != nullptr;
  pages_[page].each.reset();
  pages_[page].all = digest;
}

void DigestTable::encode(std::uint64_t page, MutableByteSpan out) const {
  const Page& p = pages_[page];
  if (p.each) return encode_digest_page(volume_, page, {p.each.get(), blocks_of(page)}, out);
  Digest same[digest_page_blocks];
  std::fill_n(same, digest_page_blocks, p.all);
  encode_digest_page(volume_, page, {same, blocks_of(page)}, out);
}

void DigestTable::change(std::uint64_t page) {
  std::uint64_t bit = std::uint64_t{1} << page % 64;
  if (is_changed_[page / 64] & bit) return;
  is_changed_[page / 64] |= bit;
  ++changed_;
  first_changed_ = std::min(first_changed_, page);
}

unsigned DigestTable::load(std::uint64_t page, ByteSpan bytes) {
  Digest read[digest_page_blocks];
  std::size_t n = blocks_of(page);
  unsigned lost = decode_digest_page(bytes, volume_, page, {read, n});
  if (std::all_of(read, read + n, [&](Digest d) { return d == read[0]; }))
    set_all(page, read[0]);
  else
    std::copy_n(read, n, each(pages_[page]));
  if (lost > 0) change(page);
  return lost;
}

void DigestTable::put(Lba lba, const std::byte* block) {
  if (blocks_ == 0) return;
  Digest digest = digest_of(volume_, lba, {block, block_size});
  if (at(lba.v) == digest) return;
  std::uint64_t page = lba.v / digest_page_blocks;
  each(pages_[page])[lba.v % digest_page_blocks] = digest;
  change(page);
}

void DigestTable::put_zeros(Lba lba, std::uint64_t blocks) {
  if (blocks_ == 0) return;
  for (std::uint64_t from = lba.v, end = lba.v + blocks; from < end;) {
    std::uint64_t page = from / digest_page_blocks, begin = page * digest_page_blocks,
                  upto = std::min(end, begin + blocks_of(page));
    if (!pages_[page].each && pages_[page].all == digest_zeros) {
      from = upto;
      continue;
    }
    bool changes = false;
    for (std::uint64_t b = from; b < upto && !changes; ++b) changes = at(b) != digest_zeros;
    if (changes) change(page);
    if (upto - from == blocks_of(page))
      set_all(page, digest_zeros);
    else if (changes)
      std::fill(each(pages_[page]) + (from - begin), each(pages_[page]) + (upto - begin), digest_zeros);
    from = upto;
  }
}

DigestTable::Run DigestTable::run_from(Lba lba, std::uint64_t blocks) const {
  if (blocks_ == 0) return {blocks, false};
  bool zeros = at(lba.v) == digest_zeros;
  std::uint64_t end = lba.v + blocks, b = lba.v;
  while (b < end && (at(b) == digest_zeros) == zeros) {
    const Page& page = pages_[b / digest_page_blocks];
    b = page.each ? b + 1 : std::min(end, (b / digest_page_blocks + 1) * digest_page_blocks);
  }
  return {b - lba.v, zeros};
}

std::uint64_t DigestTable::next_content(std::uint64_t at, std::uint64_t end) const {
  auto is_content = [](Digest d) { return d != digest_unknown && d != digest_zeros; };
  if (blocks_ == 0) return end;
  while (at < end) {
    const Page& page = pages_[at / digest_page_blocks];
    std::uint64_t page_end = std::min(end, (at / digest_page_blocks + 1) * digest_page_blocks);
    if (!page.each && is_content(page.all)) return at;
    for (; page.each && at < page_end; ++at)
      if (is_content(page.each[at % digest_page_blocks])) return at;
    at = page_end;
  }
  return end;
}

bool DigestTable::fits(Lba lba, const std::byte* block) const {
  return blocks_ == 0 || digest_fits(at(lba.v), volume_, lba, {block, block_size});
}

bool DigestTable::proves(Lba lba, const std::byte* block) const {
  return blocks_ != 0 && at(lba.v) != digest_unknown && fits(lba, block);
}

void DigestTable::forget() {
  for (std::uint64_t page = 0; page < pages_.size(); ++page) {
    set_all(page, digest_unknown);
    change(page);
  }
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
    bool goes_on = !runs.empty() && runs.back().bytes.size() < run_bytes_max &&
                   runs.back().first + runs.back().bytes.size() / block_size == page;
    if (!goes_on && runs.size() == runs_max) break;
    std::vector<std::byte>& bytes = goes_on ? runs.back().bytes : runs.emplace_back(Pages{page, {}}).bytes;
    bytes.resize(bytes.size() + block_size);
    encode(page, MutableByteSpan(bytes).last(block_size));
    is_changed_[page / 64] &= is_changed_[page / 64] - 1;  // clears the lowest bit
    --changed_;
    ++page;
  }
  return runs;
}

}  // namespace twinloft::repl
