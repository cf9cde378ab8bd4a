// Digests of the blocks of the data area: 32 bits of each block. They detect, when a block is read, that it
// has changed silently, or that its write was lost or went elsewhere. The pages of 4 KiB are at
// Superblock::digest_offset, and each of their sectors has a CRC. docs/formats/digest.md describes the pages.
// No other code encodes or decodes them.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

using Digest = std::uint32_t;
inline constexpr Digest digest_unknown = 0;  // fits any content
inline constexpr Digest digest_zeros = 1;    // the block is all zeros
inline constexpr std::uint32_t digest_sector_bytes = 512;
inline constexpr std::uint32_t digest_sector_blocks = digest_sector_bytes / 4 - 1;
inline constexpr std::uint32_t digest_page_blocks = block_size / digest_sector_bytes * digest_sector_blocks;

inline constexpr std::uint64_t digest_pages(std::uint64_t volume_blocks) {
  return (volume_blocks + digest_page_blocks - 1) / digest_page_blocks;
}

bool is_zero(ByteSpan block);  // not empty

// The digest of a block's content at its address. It differs from the two values above.
Digest digest_of(const Uuid& volume, Lba lba, ByteSpan block);
bool digest_fits(Digest digest, const Uuid& volume, Lba lba, ByteSpan block);

// digests: at most digest_page_blocks, of the blocks from page * digest_page_blocks on. out: of block_size
// bytes.
void encode_digest_page(const Uuid& volume, std::uint64_t page, std::span<const Digest> digests,
                        MutableByteSpan out);
// The digests of a sector that is damaged, or is another sector, become unknown. Returns the number of such
// sectors.
unsigned decode_digest_page(ByteSpan in, const Uuid& volume, std::uint64_t page, std::span<Digest> digests);

// All digests of a volume in memory, and the set of pages that differ from those on the disk. A page with a
// single value for all its blocks takes 16 bytes, any other page 4 KiB.
//
// A digest changes when its block is written to the data area. The changed pages become durable before the
// journal's tail moves past the records of these blocks, so that a start finds each digest in a page or in a
// record.
class DigestTable {
 public:
  DigestTable() = default;  // of a volume without digests: all content fits
  DigestTable(const Uuid& volume, std::uint64_t volume_blocks);  // all digests are unknown

  void put(Lba lba, const std::byte* block);
  void put_zeros(Lba lba, std::uint64_t blocks);
  bool fits(Lba lba, const std::byte* block) const;    // true also if the digest is unknown
  bool proves(Lba lba, const std::byte* block) const;  // the digest is known, and of this content
  void forget();                                       // all digests become unknown
  // The longest run from `lba` on, of 1 to `blocks` blocks: either all are known to be zeros, or none is.
  struct Run {
    std::uint64_t blocks;
    bool zeros;
  };
  Run run_from(Lba lba, std::uint64_t blocks) const;
  // The first block from `at` on whose digest is known and not that of zeros. `end`: no block before `end`.
  std::uint64_t next_content(std::uint64_t at, std::uint64_t end) const;
  // Takes the page from the disk. Returns the number of damaged sectors. A page with damaged sectors counts
  // as changed.
  unsigned load(std::uint64_t page, ByteSpan bytes);

  struct Pages {
    std::uint64_t first = 0;
    std::vector<std::byte> bytes;  // of this page and the next pages
  };
  bool changed() const { return changed_ > 0; }
  std::vector<Pages> take_changed(std::size_t runs_max);

  static std::uint64_t memory_max(std::uint64_t volume_blocks);  // bytes, if no page has a single value
  std::uint64_t memory() const;                                  // bytes, at present

 private:
  struct Page {
    std::unique_ptr<Digest[]> each;  // of digest_page_blocks; nullptr: all have the value `all`
    Digest all = digest_unknown;
  };
  std::size_t blocks_of(std::uint64_t page) const {
    return std::min<std::uint64_t>(digest_page_blocks, blocks_ - page * digest_page_blocks);
  }
  Digest at(std::uint64_t block) const;
  Digest* each(Page& page);
  void set_all(std::uint64_t page, Digest digest);
  void encode(std::uint64_t page, MutableByteSpan out) const;
  void change(std::uint64_t page);

  Uuid volume_;
  std::uint64_t blocks_ = 0;
  std::vector<Page> pages_;
  std::size_t pages_with_each_ = 0;
  std::vector<std::uint64_t> is_changed_;  // a bit for each page
  std::size_t changed_ = 0;
  std::uint64_t first_changed_ = 0;  // no page before it has changed
};

}  // namespace twinloft::repl
