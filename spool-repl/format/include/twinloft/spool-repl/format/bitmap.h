// The dirty bitmaps: for each other replica, which blocks of the volume it may lack. One bit a block, in
// pages of 4 KiB that carry a CRC of their own, at Superblock::bitmap_offset. docs/formats/bitmap.md is the
// description; this is its only encoder and decoder.
#pragma once

#include <span>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

inline constexpr std::uint32_t bitmap_page_header_bytes = 16;
inline constexpr std::uint32_t bitmap_page_words = (block_size - bitmap_page_header_bytes) / 8;  // of 64
                                                                                                 // blocks
                                                                                                 // each
inline constexpr std::uint32_t bitmap_page_blocks = bitmap_page_words * 64;

inline std::uint64_t bitmap_words(std::uint64_t volume_blocks) {
  return (volume_blocks + 63) / 64;
}
inline std::uint64_t bitmap_pages(std::uint64_t volume_blocks) {
  return (volume_blocks + bitmap_page_blocks - 1) / bitmap_page_blocks;
}

// Bit i of word w is block w * 64 + i. All of the blocks are within `words`.
void set_bitmap_bits(std::span<std::uint64_t> words, Lba lba, std::uint64_t blocks);

// `words`: at most bitmap_page_words, bit i of word w is block (page * bitmap_page_blocks + w * 64 + i).
// Exactly block_size bytes out.
void encode_bitmap_page(const Uuid& volume, std::uint32_t slot, std::uint64_t page,
                        std::span<const std::uint64_t> words, MutableByteSpan out);
// Errc::corrupt where the page is damaged, or another one. Who reads it then has to take all of its blocks
// for dirty.
Status decode_bitmap_page(ByteSpan in, const Uuid& volume, std::uint32_t slot, std::uint64_t page,
                          std::span<std::uint64_t> words);

}  // namespace twinloft::repl
