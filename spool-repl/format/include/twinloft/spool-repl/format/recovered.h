// What recovery finds in a journal (journal/) and the core starts from (core/).
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
  std::vector<std::byte> meta;  // body meta and payload as stored, only above RecoveredLog::commit
  std::vector<std::byte> payload;
};

// Newest committed content that the data area may lack.
struct LoadedBlock {
  Lba lba;
  Lsn lsn;  // of the end of the record that brought it
};

struct RecoveredLog {
  Superblock superblock;              // as it is on disk now
  HomeMap home_map;                   // where blocks lie in the data area
  std::vector<StoredRecord> records;  // from the tail to the last intact one, in order
  std::array<std::vector<std::uint64_t>, bitmap_slots> dirty;  // the bitmaps of slots in use, see bitmap.h
  DigestTable digests;                                         // with those of what was written home
  Lsn commit;                                                  // everything up to here is committed
  Lsn home;  // everything up to here is durable in the data area, at most `commit`
  // What data came between the two, oldest first: the content of the n-th is in the n-th block of the memory
  // that recovery was given. Blocks that came more than once are in it once, where they came last; zero
  // extents are in the records only.
  std::vector<LoadedBlock> loaded;
};

// What lies over the data area, in the order in which it came: on_block(n, block) with its place in that
// memory, on_zeros(extent, lsn).
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
  TL_CHECK_MSG(next == log.loaded.size(),
               "what recovery has loaded is not of its records, or not in their order");
}

}  // namespace twinloft::repl
