// The blocks of a replica that were written after a split brain began (the parting), and that the winner of
// the split brain may lack. The source is this replica's own files. docs/salvage.md.
//
// The result has all such blocks, and may have more: writes in flight at the parting count as written after
// it.
#pragma once

#include <vector>

#include "twinloft/spool-repl/journal/cut.h"

namespace twinloft::repl::journal {

struct Parting {
  Lsn since;    // the winner had everything up to here on its disk, and may lack later writes
  Epoch epoch;  // of the record that ends at `since`
};

class WrittenBlocks {
 public:
  WrittenBlocks(Parting parting, std::vector<std::uint64_t> words)
      : parting_(parting), words_(std::move(words)) {}
  const Parting& parting() const { return parting_; }
  // Whether any block of the range was written. The range may end beyond the volume.
  bool any(std::uint64_t lba, std::uint64_t blocks) const;
  std::uint64_t count() const;
  void add(std::uint64_t lba, std::uint64_t blocks);

 private:
  Parting parting_;
  std::vector<std::uint64_t> words_;
};

// Finds the parting from a history without a base. Errors: Errc::conflict if this replica never continued
// without the winner.
Result<Parting> find_parting(const History& history, ReplicaId winner);

// Errors: as find_parting(). Also Errc::conflict or Errc::corrupt if the journal no longer has all records
// after the parting, and the dirty bitmap of the winner is unknown or damaged.
Result<WrittenBlocks> blocks_written_since(ports::BlockFile& journal, const History& history,
                                           ReplicaId winner);

}  // namespace twinloft::repl::journal
