#include "bitmap_reader.h"

#include <algorithm>
#include <span>

#include "twinloft/spool-repl/format/bitmap.h"
#include "twinloft/spool-repl/journal/aligned.h"

namespace twinloft::repl::journal {

ReadBitmap read_bitmap(ports::BlockFile& journal, const Superblock& sb, std::uint32_t slot) {
  constexpr std::uint64_t batch = 256;
  AlignedBuffer buffer(batch * block_size);
  std::uint64_t pages = bitmap_pages(sb.volume_blocks), words = bitmap_words(sb.volume_blocks);
  ReadBitmap out;
  out.words.resize(words);
  for (std::uint64_t first = 0; first < pages; first += batch) {
    std::uint64_t n = std::min(batch, pages - first);
    MutableByteSpan bytes = buffer.span().first(n * block_size);
    Status read = journal.read(sb.bitmap_offset + slot * sb.bitmap_bytes + first * block_size, bytes);
    for (std::uint64_t page = first; page < first + n; ++page) {
      std::uint64_t at = page * bitmap_page_words;
      std::span of_page(out.words.data() + at, std::min<std::uint64_t>(bitmap_page_words, words - at));
      if (read && decode_bitmap_page(bytes.subspan((page - first) * block_size, block_size), sb.volume, slot,
                                     page, of_page))
        continue;
      std::fill(of_page.begin(), of_page.end(), ~std::uint64_t{0});
      out.pages_lost++;
    }
  }
  return out;
}

}  // namespace twinloft::repl::journal
