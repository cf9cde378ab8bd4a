// Recovery of one replica after any stop: superblock, scan of the record chain, replay of what is committed.
//
// The scan follows the chain from the tail. Where it ends there is a hole; intact frames behind it decide what the
// hole is. If one of them says that something at or above the hole was durable when it was written, the hole is
// damage to records that counted (Errc::corrupt, nothing changed). Otherwise it is a torn tail: writes that were
// under way and that nobody was told of.
#pragma once

#include "twinloft/spool-repl/format/recovered.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

struct Scan {
  RecoveredLog log;
  std::uint64_t torn_frames = 0;  // intact frames found behind the end
};

// Errc::conflict where this is not the data area of the superblock's replica, by size or by its label. Reads only.
Status check_data_area(const Superblock& superblock, ports::BlockFile& data);

// Reads only.
Result<Scan> scan_journal(ports::BlockFile& journal, const Superblock& superblock);

struct RecoveryReport {
  bool superblock_repaired = false;
  std::uint64_t records = 0, uncommitted = 0, torn_frames = 0;
  std::uint64_t blocks_replayed = 0;
  std::uint64_t bitmap_pages_lost = 0;  // damaged: their blocks count as dirty
};
struct RecoveredVolume {
  RecoveredLog log;
  RecoveryReport report;
};

// Loads the superblock, checks the data area's label, scans, writes the newest content of everything committed home
// and syncs it, then stores the superblock with a new incarnation.
Result<RecoveredVolume> recover(ports::BlockFile& journal, ports::BlockFile& data);

}  // namespace twinloft::repl::journal
