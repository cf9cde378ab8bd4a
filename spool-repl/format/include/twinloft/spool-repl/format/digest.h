// Digests at rest: what each block of the data area is to hold, so that a block which changed silently, was
// written elsewhere, or not at all, is recognised when it is read. 32 bits a block, in pages of 4 KiB at
// Superblock::digest_offset, whose sectors carry a CRC of their own. docs/formats/digest.md is the
// description; this is its only encoder and decoder.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

using Digest = std::uint32_t;
inline constexpr Digest digest_unknown = 0;  // whatever is there is right
inline constexpr Digest digest_zeros = 1;    // the block is all zeros
inline constexpr std::uint32_t digest_sector_bytes = 512;
inline constexpr std::uint32_t digest_sector_blocks = digest_sector_bytes / 4 - 1;
inline constexpr std::uint32_t digest_page_blocks = block_size / digest_sector_bytes * digest_sector_blocks;

inline constexpr std::uint64_t digest_pages(std::uint64_t volume_blocks) {
  return (volume_blocks + digest_page_blocks - 1) / digest_page_blocks;
}

// Of a block's content at its place; never one of the two above.
Digest digest_of(const Uuid& volume, Lba lba, ByteSpan block);
bool digest_fits(Digest digest, const Uuid& volume, Lba lba, ByteSpan block);

// `digests`: at most digest_page_blocks, of the blocks from page * digest_page_blocks on. Exactly block_size
// bytes out.
void encode_digest_page(const Uuid& volume, std::uint64_t page, std::span<const Digest> digests,
                        MutableByteSpan out);
// Blocks of a sector that is damaged, or another one, are unknown. Returns how many sectors of `digests` are.
unsigned decode_digest_page(ByteSpan in, const Uuid& volume, std::uint64_t page, std::span<Digest> digests);

// All of a volume's, in memory, and which pages differ from those on the disk. A page whose blocks all have
// the same one, as where nothing has been written yet, takes 16 bytes, any other 4 KiB. Changed when a block
// is written home; the pages that changed are durable before the tail moves over the records that the blocks
// came with, so a start knows them from the one or the other.
class DigestTable {
 public:
  DigestTable() = default;                                       // of a volume that has none: everything fits
  DigestTable(const Uuid& volume, std::uint64_t volume_blocks);  // nothing is known

  void put(Lba lba, const std::byte* block);
  void put_zeros(Lba lba, std::uint64_t blocks);
  bool fits(Lba lba, const std::byte* block) const;
  void forget();  // nothing is known any more of what is there
  // How many blocks from `lba` on, at least one and at most `blocks`, are all known to be zeros, or all not.
  struct Run {
    std::uint64_t blocks;
    bool zeros;
  };
  Run run_from(Lba lba, std::uint64_t blocks) const;
  // The first block at or after `at` and before `end` whose digest is known, and is not that of zeros; `end`
  // where there is none.
  std::uint64_t next_content(std::uint64_t at, std::uint64_t end) const;
  // As it is on the disk. Returns how many of its sectors are lost; such a page counts as changed.
  unsigned load(std::uint64_t page, ByteSpan bytes);

  struct Pages {
    std::uint64_t first = 0;
    std::vector<std::byte> bytes;  // of this one and those that follow
  };
  bool changed() const { return changed_ > 0; }
  std::vector<Pages> take_changed(std::size_t runs_max);

  static std::uint64_t memory_max(std::uint64_t volume_blocks);  // bytes, with every page different
  std::uint64_t memory() const;                                  // bytes, now

 private:
  struct Page {
    std::unique_ptr<Digest[]> each;  // digest_page_blocks; nullptr: `all` of them
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
  std::vector<std::uint64_t> is_changed_;  // by page, 64 a word
  std::size_t changed_ = 0;
  std::uint64_t first_changed_ = 0;  // no page before it
};

}  // namespace twinloft::repl
