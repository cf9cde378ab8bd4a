// Follows the chain of records through a ring, or through two copies of it.
#pragma once

#include "ring_reader.h"
#include "twinloft/spool-repl/journal/listing.h"

namespace twinloft::repl::journal {

class ChainWalk {
 public:
  ChainWalk(JournalPos pos, LogMark last) : pos_(pos), last_(last) {}

  // The next record of this ring, if it ends at or before position `end`. It is at pos(), or at the beginning
  // of the ring if it did not fit before the ring's end. nullopt: no such record, and the walk does not
  // advance.
  Result<std::optional<ListedRecord>> next(RingReader& reader, const Superblock& sb, std::uint64_t end);

  JournalPos pos() const { return pos_; }
  const LogMark& last() const { return last_; }

 private:
  JournalPos pos_;
  LogMark last_;
};

}  // namespace twinloft::repl::journal
