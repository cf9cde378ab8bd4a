// Which blocks of a replica were written after its history and another one's parted, as far as this replica's
// own files tell: what that other one, the winner of a split brain, may lack. docs/spool-repl.md, "Salvage".
//
// Never too few blocks, perhaps some too many: what was on its way when they parted counts as written behind
// it.
#pragma once

#include <vector>

#include "twinloft/spool-repl/journal/cut.h"

namespace twinloft::repl::journal {

struct Parting {
  Lsn since;    // the winner had everything up to here, durably; what is behind it may be missing there
  Epoch epoch;  // of the record that ends there
};

class WrittenBlocks {
 public:
  WrittenBlocks(Parting parting, std::vector<std::uint64_t> words)
      : parting_(parting), words_(std::move(words)) {}
  const Parting& parting() const { return parting_; }
  bool any(std::uint64_t lba, std::uint64_t blocks) const;  // beyond the volume: none
  std::uint64_t count() const;
  void add(std::uint64_t lba, std::uint64_t blocks);

 private:
  Parting parting_;
  std::vector<std::uint64_t> words_;
};

// Errc::conflict where the log here never went on without the winner, so that nothing says where they parted.
// The history must be one without a base.
Result<Parting> find_parting(const History& history, ReplicaId winner);

// Errors: as find_parting; Errc::conflict and Errc::corrupt where records from behind the parting are no
// longer in the journal, and the bitmap for the winner, which tells of them then, is not known or damaged.
Result<WrittenBlocks> blocks_written_since(ports::BlockFile& journal, const History& history,
                                           ReplicaId winner);

}  // namespace twinloft::repl::journal
