// What recovery finds in a journal (journal/) and the core starts from (core/).
#pragma once

#include <vector>

#include "twinloft/spool-repl/format/digest.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/superblock.h"

namespace twinloft::repl {

struct StoredRecord {
  Body body;
  JournalPos pos;
  std::uint32_t total_blocks = 0;
  std::uint32_t meta_bytes = 0;
  std::vector<std::byte> meta;     // body meta and payload as stored, only above RecoveredLog::commit
  std::vector<std::byte> payload;
};

// Newest committed content that the data area may lack.
struct LoadedBlock {
  Lba lba;
  Lsn lsn;  // of the end of the record that brought it
};

struct RecoveredLog {
  Superblock superblock;              // as it is on disk now
  std::vector<StoredRecord> records;  // from the tail to the last intact one, in order
  std::array<std::vector<std::uint64_t>, bitmap_slots> dirty;  // the bitmaps of slots in use, see bitmap.h
  DigestTable digests;                // with those of what was written home
  Lsn commit;                         // everything up to here is committed
  Lsn home;                           // everything up to here is durable in the data area, at most `commit`
  // What data came between the two, oldest first: the content of the n-th is in the n-th block of the memory that recovery was given.
  // Blocks that came more than once are in it once, where they came last; zero extents are in the records only.
  std::vector<LoadedBlock> loaded;
};

}  // namespace twinloft::repl
