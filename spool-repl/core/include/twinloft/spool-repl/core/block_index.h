// The blocks of the volume with newer content than in the data area, and its place: a slot of the arena, or
// zeros. Data blocks and zero extents are disjoint: the newest put counts.
//
// Each entry has a serial, so that the owner can remove exactly the version that it means.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <vector>

#include "twinloft/spool-repl/core/arena.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::core {

class BlockIndex {
 public:
  struct DataEntry {
    Slot slot;
    std::uint64_t serial;
  };
  struct ZeroExtent {
    Lba lba;
    std::uint64_t blocks;
    std::uint64_t serial;
  };
  enum class Kind { absent, data, zeros };
  struct Found {
    Kind kind = Kind::absent;
    Slot slot = 0;
    std::uint64_t serial = 0;
  };

  explicit BlockIndex(Arena& arena);

  bool empty() const { return data_.empty() && zeros_.empty(); }
  std::size_t data_blocks() const { return data_.size(); }
  std::size_t zero_extents() const { return zeros_.size(); }
  Found find(Lba lba) const;

  void put_data(Lba lba, Slot slot, std::uint64_t serial);  // takes a reference
  void put_zeros(Lba lba, std::uint64_t blocks, std::uint64_t serial);
  void erase_data_if(Lba lba, std::uint64_t serial);
  void erase_zeros_if(Lba lba, std::uint64_t blocks, std::uint64_t serial);  // the parts within the range
  void clear();

  // Watches a block. touched(): whether the block was put, or everything cleared, since watch(). For few
  // blocks at a time.
  void watch(Lba lba) { watched_[lba.v] = false; }
  bool touched(Lba lba) const;
  void unwatch(Lba lba) { watched_.erase(lba.v); }

  const boost::unordered_flat_map<std::uint64_t, DataEntry>& data() const { return data_; }
  // Appends the parts of zero extents within the range, in order.
  void zeros_within(Lba lba, std::uint64_t blocks, std::vector<ZeroExtent>& out) const;

 private:
  struct Zero {
    std::uint64_t end;
    std::uint64_t serial;
  };
  using ZeroMap = std::map<std::uint64_t, Zero>;
  void carve_zeros(std::uint64_t begin, std::uint64_t end);
  void touch(std::uint64_t begin, std::uint64_t end);
  ZeroMap::const_iterator first_overlap(std::uint64_t begin) const;

  Arena& arena_;
  boost::unordered_flat_map<std::uint64_t, DataEntry> data_;
  ZeroMap zeros_;
  std::map<std::uint64_t, bool> watched_;  // true: touched
};

}  // namespace twinloft::repl::core
