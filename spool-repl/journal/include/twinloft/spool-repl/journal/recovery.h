// Recovery of a replica after any stop: loads the superblock, scans the chain of records, and brings
// committed blocks into memory or into the data area ("home").
//
// The scan follows the chain from the tail to a hole. Intact frames after the hole decide what the hole is.
// If a frame shows that an LSN at or after the hole was durable, the hole is damage: records that were
// acknowledged are missing. Otherwise the hole is a torn tail: writes in flight that were not acknowledged.
// An unreadable place counts as damage also if no frame shows what was in it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/spool-repl/format/recovered.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

// Acknowledged records are missing, by bit rot, a misdirected write or an unreadable sector.
struct Damage {
  Lsn after;       // the last record before the damage
  Lsn upto;        // everything up to here was durable or committed
  Lsn commit;      // everything up to here was committed: the data area may have it, completely or in part
  JournalPos end;  // the end of the record before the damage
  std::uint64_t offset = 0;          // bytes, on the journal device
  std::optional<Epoch> epoch;        // of `commit`; nullopt: unknown
  std::optional<EpochEntry> newest;  // the newest known epoch, also after the damage
  std::string text;                  // for the administrator
};

struct Scan {
  RecoveredLog log;
  std::uint64_t torn_frames = 0;        // intact frames that do not belong to the chain
  std::vector<std::uint64_t> leftover;  // the offsets of these frames, and of unreadable places outside of
                                        // the chain: bytes, on the journal device
  std::optional<Damage> damage;
};

// Checks by size and label that this is the data area of the superblock's replica. Writes nothing. Errors:
// Errc::conflict.
Status check_data_area(const Superblock& superblock, ports::BlockFile& data);

// Scans the chain of records. Writes nothing.
Result<Scan> scan_journal(ports::BlockFile& journal, const Superblock& superblock);

struct RecoveryReport {
  bool superblock_repaired = false;
  std::uint64_t records = 0, uncommitted = 0, torn_frames = 0;
  std::uint64_t blocks_replayed = 0;  // written to the data area
  std::optional<Damage> damage;
  std::uint64_t bitmap_pages_lost = 0;    // damaged pages; their blocks count as dirty
  std::uint64_t digest_sectors_lost = 0;  // damaged sectors; the digests of their blocks are unknown
};
struct RecoveredVolume {
  RecoveredLog log;
  RecoveryReport report;
};

// Called before the first change of a damaged journal, so that the caller keeps a copy. Its error ends the
// recovery.
using OnDamage = std::function<Status(const Damage&)>;

// Recovers the replica, in this order: loads the superblock, checks the label of the data area, scans the
// journal, loads the newest committed content into `room`, writes what does not fit home and makes it
// durable, stores the superblock with a new incarnation, and erases leftover frames. Records that are not
// known to be committed also need `room`.
//
// If the journal is damaged: without `on_damage` nothing is changed, and the error is Errc::corrupt. With
// `on_damage`, the log ends before the damage, and the replica is Inconsistent until a peer has supplied the
// missing content.
//
// room: aligned to block_size, and a multiple of it. Without it, all committed content is written home.
Result<RecoveredVolume> recover(ports::BlockFile& journal, ports::BlockFile& data,
                                const OnDamage& on_damage = {}, MutableByteSpan room = {});

}  // namespace twinloft::repl::journal
