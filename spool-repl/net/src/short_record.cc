#include "short_record.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::repl::net {

void ShortRecord::set(std::uint32_t meta_bytes, std::span<const ByteSpan> pieces) {
  meta_.clear();
  blocks_.clear();
  std::size_t meta = meta_bytes;
  for (ByteSpan piece : pieces) {
    if (meta > 0) {
      std::size_t n = std::min(meta, piece.size());
      meta_.push_back(piece.first(n));
      piece = piece.subspan(n);
      meta -= n;
    }
    TL_CHECK(piece.size() % block_size == 0);
    for (std::size_t at = 0; at < piece.size(); at += block_size) blocks_.push_back(piece.data() + at);
  }
  runs_ = find_runs(blocks_);
}

void ShortRecord::add_parts(std::vector<ByteSpan>& to) const {
  to.insert(to.end(), meta_.begin(), meta_.end());
  std::size_t at = 0;
  for (const PayloadRun& run : runs_) {
    for (std::size_t b = at; run.kind == PayloadRun::Kind::content && b < at + run.blocks; ++b) {
      // One part for blocks that lie one behind the other.
      bool continues = b > at && blocks_[b] == to.back().data() + to.back().size();
      if (continues)
        to.back() = {to.back().data(), to.back().size() + block_size};
      else
        to.push_back({blocks_[b], block_size});
    }
    at += run.blocks;
  }
}

}  // namespace twinloft::repl::net
