#include "short_record.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::repl::net {

ShortRecord::ShortRecord(std::uint32_t meta_bytes, std::span<const ByteSpan> pieces) {
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

std::vector<ByteSpan> ShortRecord::parts(ByteSpan prefix) const {
  std::vector<ByteSpan> out{prefix};
  out.insert(out.end(), meta_.begin(), meta_.end());
  std::size_t at = 0;
  for (const PayloadRun& run : runs_) {
    for (std::size_t b = at; run.kind == PayloadRun::Kind::content && b < at + run.blocks; ++b) {
      // One part for blocks that lie one behind the other.
      bool continues = b > at && blocks_[b] == out.back().data() + out.back().size();
      if (continues)
        out.back() = {out.back().data(), out.back().size() + block_size};
      else
        out.push_back({blocks_[b], block_size});
    }
    at += run.blocks;
  }
  return out;
}

}  // namespace twinloft::repl::net
