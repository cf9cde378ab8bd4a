// What each block of the data area is to hold (digest.h), in memory: 4 bytes a block. Changed when a block is written home; the pages that
// changed are durable before the tail moves over the records that the blocks came with, so a start knows them from the one or the other.
#pragma once

#include <vector>

#include "twinloft/spool-repl/core/effects.h"
#include "twinloft/spool-repl/format/digest.h"

namespace twinloft::repl::core {

class Digests {
 public:
  Digests() = default;  // none
  Digests(const Superblock& sb, std::vector<Digest> digests, const std::vector<std::uint64_t>& changed_pages);

  void put(Lba lba, const std::byte* block);
  void put_zeros(Lba lba, std::uint64_t blocks);
  bool fits(Lba lba, const std::byte* block) const;
  void forget();  // nothing is known any more of what is there

  bool changed() const { return next_ < changed_.size(); }
  // Takes changed pages, at most so many writes of at most pages_per_write each.
  void write(const Superblock& sb, std::size_t writes_max, std::vector<BitmapWrite>& out);

 private:
  void change(std::uint64_t page);

  Uuid volume_;
  std::vector<Digest> digests_;         // by block; empty: the volume has none
  std::vector<bool> is_changed_;        // by page
  std::vector<std::uint64_t> changed_;  // pages; those before next_ are taken
  std::size_t next_ = 0;
  bool sorted_ = true;                  // from next_ on
};

}  // namespace twinloft::repl::core
