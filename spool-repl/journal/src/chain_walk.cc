#include "chain_walk.h"

namespace twinloft::repl::journal {

Result<std::optional<ListedRecord>> ChainWalk::next(RingReader& reader, const Superblock& sb,
                                                    std::uint64_t end) {
  std::uint64_t ring = sb.ring_bytes;
  std::uint64_t wrapped = pos_.v % ring == 0 ? pos_.v : (pos_.v / ring + 1) * ring;
  for (std::uint64_t at : {pos_.v, wrapped}) {
    if (at >= end) continue;
    TL_TRY_ASSIGN(auto found, read_record(reader, sb, JournalPos{at}, last_));
    if (!found || is_cut_off(sb, found->frame, found->body)) continue;
    std::uint64_t behind = at + std::uint64_t{found->frame.total_blocks} * block_size;
    if (behind > end) continue;
    pos_ = {behind};
    last_ = found->body.mark();
    return ListedRecord{found->frame, std::move(found->body)};
  }
  return std::nullopt;
}

}  // namespace twinloft::repl::journal
