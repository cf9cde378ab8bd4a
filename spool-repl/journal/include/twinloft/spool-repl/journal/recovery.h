// Recovery of one replica after any stop: superblock, scan of the record chain, what is committed brought
// into memory or home.
//
// The scan follows the chain from the tail. Where it ends there is a hole; intact frames behind it decide
// what the hole is. If one of them says that something at or above the hole was durable when it was written,
// the hole is damage to records that counted. Otherwise it is a torn tail: writes that were under way and
// that nobody was told of. An unreadable place is judged in the same way, but where nothing tells what was in
// it, it counts as damage too.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/spool-repl/format/recovered.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

// Records that counted are gone: bit rot, a write that went elsewhere, an unreadable sector.
struct Damage {
  Lsn after;       // the last record before it
  Lsn upto;        // everything up to here was durable, or committed, once
  Lsn commit;      // everything up to here was committed: it may be in the data area, whole or in part
  JournalPos end;  // of the record before it
  std::uint64_t offset = 0;  // bytes, on the journal device
  Epoch epoch;               // that `commit` lies in, as far as is known
  EpochEntry newest;         // the newest one known, behind the damage too
  std::string text;          // for people
};

struct Scan {
  RecoveredLog log;
  std::uint64_t torn_frames = 0;        // intact frames that are not of the chain
  std::vector<std::uint64_t> leftover;  // these, and what cannot be read beside the chain: bytes, on the
                                        // journal device
  std::optional<Damage> damage;
};

// Errc::conflict where this is not the data area of the superblock's replica, by size or by its label. Reads
// only.
Status check_data_area(const Superblock& superblock, ports::BlockFile& data);

// Reads only.
Result<Scan> scan_journal(ports::BlockFile& journal, const Superblock& superblock);

struct RecoveryReport {
  bool superblock_repaired = false;
  std::uint64_t records = 0, uncommitted = 0, torn_frames = 0;
  std::uint64_t blocks_replayed = 0;  // written home
  std::optional<Damage> damage;
  std::uint64_t bitmap_pages_lost = 0;    // damaged: their blocks count as dirty
  std::uint64_t digest_sectors_lost = 0;  // damaged: what their blocks are to hold is not known
};
struct RecoveredVolume {
  RecoveredLog log;
  RecoveryReport report;
};

// Called before anything is changed, to keep a copy of what there is; its error ends the recovery.
using OnDamage = std::function<Status(const Damage&)>;

// Loads the superblock, checks the data area's label, scans, brings the newest content of everything
// committed into `room`, as far as it and the records that are not known committed fit there, and what is
// older home, durably; then stores the superblock with a new incarnation, and erases frames that are left
// over. Where the journal is damaged: Errc::corrupt, nothing changed; or, with `on_damage`, the log ends
// before the damage and the replica is Inconsistent until another one has brought it what is missing.
//
// `room` is aligned to and a multiple of block_size; without it all goes home.
Result<RecoveredVolume> recover(ports::BlockFile& journal, ports::BlockFile& data,
                                const OnDamage& on_damage = {}, MutableByteSpan room = {});

}  // namespace twinloft::repl::journal
