// The records of a journal, for offline tools. The journal is not changed or repaired.
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
  bool superblock_copies_agree = true;  // false: a crash between both writes, or damage. Recovery writes the
                                        // second copy again
  std::vector<ListedRecord> records;    // from the tail to the last intact record, in order
  std::vector<FrameHeader> behind;      // intact frames of this lap after the end
  JournalPos end;                       // the end of the last record
  LogMark last;                         // of the last record; without records, the tail
  Lsn commit;                           // the highest LSN that the superblock or a frame marks as committed
  std::optional<Error> damage;          // the error with which recovery would refuse the journal
};

// Errors: as load_superblock(); Errc::invalid for a record that needs features of a later release.
Result<Listing> list_journal(ports::BlockFile& journal);

}  // namespace twinloft::repl::journal
