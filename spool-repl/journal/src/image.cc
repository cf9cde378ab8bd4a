#include "twinloft/spool-repl/journal/image.h"

#include <algorithm>
#include <cstring>

#include "twinloft/base/check.h"

namespace twinloft::repl::journal {

Image::Image(ports::BlockFile& data, HomeMap home_map, std::vector<Piece> pieces)
    : data_(data), home_map_(std::move(home_map)), pieces_(std::move(pieces)) {
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.lba < b.lba; });
}

Status Image::visit(std::uint64_t lba, std::uint64_t blocks,
                    const std::function<Status(const Run&)>& visit) const {
  std::uint64_t at = lba, end = lba + blocks;
  TL_CHECK(end <= home_map_.volume_blocks());
  auto piece = std::partition_point(pieces_.begin(), pieces_.end(),
                                    [&](const Piece& p) { return p.lba + p.blocks <= at; });
  while (at < end) {
    bool in_piece = piece != pieces_.end() && piece->lba <= at;
    std::uint64_t stop = in_piece ? piece->lba + piece->blocks : piece != pieces_.end() ? piece->lba : end;
    std::uint64_t n = std::min(stop, end) - at;
    if (in_piece) {
      TL_TRY(visit({at, n, piece->journal, piece->offset + (at - piece->lba) * block_size, true}));
      ++piece;
    } else {
      n = home_map_.run(Lba{at}, n);
      TL_TRY(visit({at, n, &data_, home_map_.at(Lba{at}).bytes(), false}));
    }
    at += n;
  }
  return {};
}

Status Image::read(std::uint64_t offset, MutableByteSpan out) const {
  TL_CHECK(offset % block_size == 0 && out.size() % block_size == 0);
  std::uint64_t first = offset / block_size;
  return visit(first, out.size() / block_size, [&](const Run& run) -> Status {
    MutableByteSpan part = out.subspan((run.lba - first) * block_size, run.blocks * block_size);
    if (run.file) return run.file->read(run.offset, part);
    std::memset(part.data(), 0, part.size());
    return {};
  });
}

}  // namespace twinloft::repl::journal
