// The dirty bitmaps: for each other replica, the blocks of the volume that it may lack. A bit for each block,
// in pages of 4 KiB with a CRC, at Superblock::bitmap_offset. docs/formats/bitmap.md describes the pages. No
// other code encodes or decodes them.
#pragma once

#include <span>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

inline constexpr std::uint32_t bitmap_page_header_bytes = 16;
// A word has the bits of 64 blocks.
inline constexpr std::uint32_t bitmap_page_words = (block_size - bitmap_page_header_bytes) / 8;
inline constexpr std::uint32_t bitmap_page_blocks = bitmap_page_words * 64;

inline std::uint64_t bitmap_words(std::uint64_t volume_blocks) {
  return (volume_blocks + 63) / 64;
}
inline std::uint64_t bitmap_pages(std::uint64_t volume_blocks) {
  return (volume_blocks + bitmap_page_blocks - 1) / bitmap_page_blocks;
}

// Sets the bits of the blocks, which must be within `words`. Bit i of word w is block w * 64 + i.
void set_bitmap_bits(std::span<std::uint64_t> words, Lba lba, std::uint64_t blocks);

// words: at most bitmap_page_words. Bit i of word w is block (page * bitmap_page_blocks + w * 64 + i). out:
// of block_size bytes.
void encode_bitmap_page(const Uuid& volume, std::uint32_t slot, std::uint64_t page,
                        std::span<const std::uint64_t> words, MutableByteSpan out);
// Errors: Errc::corrupt if the page is damaged, or is another page. The caller must then treat all blocks of
// the page as dirty.
Status decode_bitmap_page(ByteSpan in, const Uuid& volume, std::uint32_t slot, std::uint64_t page,
                          std::span<std::uint64_t> words);

}  // namespace twinloft::repl
