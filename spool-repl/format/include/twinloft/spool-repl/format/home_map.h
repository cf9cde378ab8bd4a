// Where each block of the volume lies in the data area. Today every volume uses the identity. Snapshots, the
// direct path and erasure coding place blocks elsewhere.
//
// Every access to the data area asks this map for its offset. An LBA is no offset, and does not become one by
// multiplication: only the map makes a HomeOffset. Blocks that are neighbours on the volume need not be
// neighbours in the data area, so a range of the volume is a list of extents there: one today.
//
// Lookups outside the volume are errors of the caller, and stop the process.
#pragma once

#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

// A place in the data area.
class HomeOffset {
 public:
  std::uint64_t bytes() const { return bytes_; }
  auto operator<=>(const HomeOffset&) const = default;

 private:
  friend class HomeMap;
  explicit HomeOffset(std::uint64_t bytes) : bytes_(bytes) {}
  std::uint64_t bytes_;
};

// Blocks that are neighbours on the volume and in the data area.
struct HomeExtent {
  Lba lba;
  std::uint64_t blocks;
  HomeOffset at;
};

class HomeMap {
 public:
  struct Piece {
    Lba lba;
    std::uint64_t home;  // first block in the data area
    std::uint64_t blocks;
  };

  HomeMap() = default;  // of a volume without blocks
  static HomeMap identity(std::uint64_t volume_blocks);
  // `pieces` cover the volume from LBA 0 on, in order. Errc::invalid: there is a gap, or two pieces share a
  // block of the data area.
  static Result<HomeMap> of(std::vector<Piece> pieces);

  std::uint64_t volume_blocks() const { return volume_blocks_; }
  HomeOffset at(Lba lba) const;
  // How many of the `blocks` from `lba` on, at least one, are neighbours in the data area.
  std::uint64_t run(Lba lba, std::uint64_t blocks) const;
  // Whether the block lies right behind the block before it, in the data area too. Not so for LBA 0.
  bool follows(Lba lba) const;
  // Calls visit(HomeExtent) for each extent of the range, in order of the volume.
  template <class Visit>
  void each_extent(Lba lba, std::uint64_t blocks, Visit visit) const {
    for (std::uint64_t n = 0; blocks > 0; lba = lba + n, blocks -= n) {
      n = run(lba, blocks);
      visit(HomeExtent{lba, n, at(lba)});
    }
  }
  std::vector<HomeExtent> extents(Lba lba, std::uint64_t blocks) const;

 private:
  const Piece& piece_of(Lba lba) const;

  std::uint64_t volume_blocks_ = 0;
  std::vector<Piece> pieces_;  // in order; two neighbours are never one piece
};

// The map of the volume that has this superblock.
HomeMap home_map_of(const Superblock& superblock);

}  // namespace twinloft::repl
