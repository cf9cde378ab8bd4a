// The place of each block of the volume in the data area. At present, every volume uses the identity.
// Snapshots in the direct path and erasure coding place blocks elsewhere.
//
// Every access to the data area gets its offset from this map. Only the map converts an LBA to a HomeOffset.
// Adjacent blocks of the volume need not be adjacent in the data area, so a range of the volume is a list of
// extents: at present a single extent.
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

// Blocks that are adjacent in the volume and in the data area.
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
  // How many of the `blocks` from `lba` on are adjacent in the data area, at least one.
  std::uint64_t run(Lba lba, std::uint64_t blocks) const;
  // Whether the block directly follows the block before it, also in the data area. False for LBA 0.
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
  std::vector<Piece> pieces_;  // in order; adjacent pieces are joined
};

// The map of the volume that has this superblock.
HomeMap home_map_of(const Superblock& superblock);

}  // namespace twinloft::repl
