// The result of recovery (journal/), from which the core starts (core/).
#pragma once

#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/format/digest.h"
#include "twinloft/spool-repl/format/home_map.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/superblock.h"

namespace twinloft::repl {

struct StoredRecord {
  Body body;
  JournalPos pos;
  std::uint32_t total_blocks = 0;
  std::uint32_t meta_bytes = 0;
  std::vector<std::byte> meta;  // body meta and payload as stored, after RecoveredLog::commit; otherwise
                                // empty
  std::vector<std::byte> payload;
};

// A block whose newest committed content may be missing in the data area.
struct LoadedBlock {
  Lba lba;
  Lsn lsn;  // the end of the record with the content
};

struct RecoveredLog {
  Superblock superblock;              // as on the disk after recovery
  HomeMap home_map;                   // the places of blocks in the data area
  std::vector<StoredRecord> records;  // from the tail to the last intact record, in order
  std::array<std::vector<std::uint64_t>, bitmap_slots> dirty;  // the bitmaps of slots in use, see bitmap.h
  DigestTable digests;  // also of the blocks that recovery has written home
  Lsn commit;           // everything up to here is committed
  Lsn home;             // everything up to here is durable in the data area, at most `commit`
  // The blocks with data between `home` and `commit`, oldest first. The content of the n-th is the n-th block
  // of recovery's memory. A block that was written several times is in it once, for its last write. Zero
  // extents are in the records alone.
  std::vector<LoadedBlock> loaded;
};

// Visits the content between `home` and `commit`, oldest first: on_block(n, block), where n is the index of
// the block in `loaded`, and on_zeros(extent, lsn).
template <class OnBlock, class OnZeros>
void for_each_loaded(const RecoveredLog& log, OnBlock on_block, OnZeros on_zeros) {
  std::size_t next = 0;
  for (const StoredRecord& r : log.records) {
    Lsn lsn = r.body.mark().lsn;
    if (lsn <= log.home || lsn > log.commit) continue;
    for (const Extent& e : r.body.extents) {
      if (e.kind == ExtentKind::zeros) {
        on_zeros(e, lsn);
        continue;
      }
      for (;
           next < log.loaded.size() && log.loaded[next].lsn == lsn && log.loaded[next].lba < e.lba + e.blocks;
           ++next)
        on_block(next, log.loaded[next]);
    }
  }
  TL_CHECK_MSG(next == log.loaded.size(), "a loaded block belongs to no record, or is out of order");
}

}  // namespace twinloft::repl
