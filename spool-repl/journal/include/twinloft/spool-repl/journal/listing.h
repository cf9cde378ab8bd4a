// What a journal holds, for those who look at it from outside. Nothing is written, also not what recovery
// would repair.
#pragma once

#include <optional>
#include <vector>

#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

struct ListedRecord {
  FrameHeader frame;
  Body body;
};

struct Listing {
  Superblock superblock;
  bool superblock_copies_agree = true;  // false: a crash between the two, or damage; recovery writes the
                                        // second copy anew
  std::vector<ListedRecord> records;    // from the tail to the last whole one, in order
  std::vector<FrameHeader> behind;      // whole frames of this lap behind the end
  JournalPos end;                       // behind the last record
  LogMark last;                         // of the last record; the tail where there is none
  Lsn commit;                           // highest LSN that the superblock or a frame calls committed
  std::optional<Error> damage;  // what recovery would refuse the journal with; nothing counts as torn then
};

// Errors: as load_superblock; Errc::invalid for records that need what this release does not have.
Result<Listing> list_journal(ports::BlockFile& journal);

}  // namespace twinloft::repl::journal
