// Reads and writes the two copies of the superblock.
#pragma once

#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

struct LoadedSuperblock {
  Superblock superblock;
  bool repaired = false;  // an unreadable copy was rewritten from the other copy
};

struct SuperblockCopies {
  Superblock superblock;  // of the newest readable copy
  int newest = 0;         // the index of this copy, 0 or 1
  bool other_readable = true, copies_agree = true;
};

// Reads both copies, and writes nothing. Errors: as load_superblock().
Result<SuperblockCopies> read_superblock(ports::BlockFile& journal);

// Reads both copies, and rewrites a copy that is unreadable or older. Errors: Errc::not_found (not a journal
// of a volume), Errc::corrupt (both copies are unreadable).
Result<LoadedSuperblock> load_superblock(ports::BlockFile& journal);

// Writes and syncs the first copy, then the second copy, so that at least one of them is intact at any
// moment.
Status store_superblock(ports::BlockFile& journal, const Superblock& superblock);

}  // namespace twinloft::repl::journal
