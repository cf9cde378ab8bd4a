// Reading and writing the two copies of the superblock.
#pragma once

#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

struct LoadedSuperblock {
  Superblock superblock;
  bool repaired = false;  // one copy was unreadable and has been rewritten from the other
};

struct SuperblockCopies {
  Superblock superblock;  // the newest one that is readable
  int newest = 0;         // which copy that is
  bool other_readable = true, copies_agree = true;
};

// Changes nothing. Errors as load_superblock.
Result<SuperblockCopies> read_superblock(ports::BlockFile& journal);

// Writes a copy anew that is unreadable or older. Errc::not_found: this is no journal of a volume.
// Errc::corrupt: both copies are unreadable.
Result<LoadedSuperblock> load_superblock(ports::BlockFile& journal);

// First copy, sync, second copy, sync.
Status store_superblock(ports::BlockFile& journal, const Superblock& superblock);

}  // namespace twinloft::repl::journal
