#include "twinloft/spool-repl/format/home_map.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::repl {

namespace {

std::uint64_t home_end(const HomeMap::Piece& p) {
  return p.home + p.blocks;
}

bool share_a_place(std::vector<HomeMap::Piece> pieces) {
  auto by_home = [](const HomeMap::Piece& a, const HomeMap::Piece& b) { return a.home < b.home; };
  std::sort(pieces.begin(), pieces.end(), by_home);
  auto overlap = [](const HomeMap::Piece& a, const HomeMap::Piece& b) { return home_end(a) > b.home; };
  return std::adjacent_find(pieces.begin(), pieces.end(), overlap) != pieces.end();
}

}  // namespace

HomeMap HomeMap::identity(std::uint64_t volume_blocks) {
  HomeMap map;
  map.volume_blocks_ = volume_blocks;
  if (volume_blocks > 0) map.pieces_.push_back({Lba{0}, 0, volume_blocks});
  return map;
}

Result<HomeMap> HomeMap::of(std::vector<Piece> pieces) {
  if (share_a_place(pieces))
    return fail(Errc::invalid, "two blocks of the volume have the same place in the data area");
  HomeMap map;
  for (const Piece& p : pieces) {
    if (p.lba.v != map.volume_blocks_ || p.blocks == 0)
      return fail(Errc::invalid, "LBA {} has no place in the data area", map.volume_blocks_);
    map.volume_blocks_ += p.blocks;
    bool joins = !map.pieces_.empty() && home_end(map.pieces_.back()) == p.home;
    if (joins)
      map.pieces_.back().blocks += p.blocks;
    else
      map.pieces_.push_back(p);
  }
  return map;
}

const HomeMap::Piece& HomeMap::piece_of(Lba lba) const {
  TL_CHECK(lba.v < volume_blocks_);
  if (pieces_.size() == 1) return pieces_.front();
  auto behind = std::upper_bound(pieces_.begin(), pieces_.end(), lba,
                                 [](Lba at, const Piece& p) { return at < p.lba; });
  return *std::prev(behind);
}

HomeOffset HomeMap::at(Lba lba) const {
  const Piece& p = piece_of(lba);
  return HomeOffset((p.home + (lba.v - p.lba.v)) * block_size);
}

std::uint64_t HomeMap::run(Lba lba, std::uint64_t blocks) const {
  TL_CHECK(blocks > 0 && blocks <= volume_blocks_ && lba.v <= volume_blocks_ - blocks);
  const Piece& p = piece_of(lba);
  return std::min(blocks, p.lba.v + p.blocks - lba.v);
}

bool HomeMap::follows(Lba lba) const {
  return piece_of(lba).lba != lba;
}

std::vector<HomeExtent> HomeMap::extents(Lba lba, std::uint64_t blocks) const {
  std::vector<HomeExtent> all;
  each_extent(lba, blocks, [&](const HomeExtent& e) { all.push_back(e); });
  return all;
}

HomeMap home_map_of(const Superblock& superblock) {
  return HomeMap::identity(superblock.volume_blocks);
}

}  // namespace twinloft::repl
