#include "digest_reader.h"

#include <algorithm>

#include "twinloft/spool-repl/journal/aligned.h"

namespace twinloft::repl::journal {

ReadDigests read_digests(ports::BlockFile& journal, const Superblock& sb) {
  ReadDigests out;
  if (sb.digest_bytes == 0) return out;
  std::uint64_t pages = sb.digest_bytes / block_size, batch = std::min<std::uint64_t>(256, pages);
  AlignedBuffer buffer(batch * block_size);
  out.table = DigestTable(sb.volume, sb.volume_blocks);
  for (std::uint64_t first = 0; first < pages; first += batch) {
    std::uint64_t n = std::min(batch, pages - first);
    MutableByteSpan bytes = buffer.span().first(n * block_size);
    // A bad sector makes a read of many pages fail, but only its own page is lost.
    bool whole = journal.read(sb.digest_offset + first * block_size, bytes).has_value();
    for (std::uint64_t page = first; page < first + n; ++page) {
      MutableByteSpan of_page = bytes.subspan((page - first) * block_size, block_size);
      if (!whole && !journal.read(sb.digest_offset + page * block_size, of_page))
        std::fill(of_page.begin(), of_page.end(), std::byte{0});
      out.sectors_lost += out.table.load(page, of_page);
    }
  }
  return out;
}

}  // namespace twinloft::repl::journal
