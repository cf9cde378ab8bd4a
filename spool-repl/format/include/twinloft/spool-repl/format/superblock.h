// The superblock: one 4 KiB block, kept twice at the start of the journal device (offsets below).
// docs/formats/superblock.md is the description; this is its only encoder and decoder.
//
// A change is written to the first copy, made durable, then to the second, made durable, and only then acted
// upon. So whichever copy is readable with the highest generation is right, and a single bad copy is repaired
// from it.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/disk_state.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

inline constexpr std::uint64_t superblock_offset[2] = {0, 64 * 1024};
inline constexpr std::uint64_t journal_reserved_bytes = 1024 * 1024;  // before the bitmaps
inline constexpr std::uint64_t journal_ring_bytes_min = 8ull << 20;   // several of the largest records
inline constexpr std::uint32_t bitmap_slots = 4;  // other members with a place for a bitmap
inline constexpr std::uint32_t split_brains_max = replica_id_max - 1;

enum SuperblockFlags : std::uint32_t {
  flag_data_label = 1,  // the data area ends in a label block (see DataLabel); absent on an adopted device
};

// What is known of another replica: its content is the history up to `since`, but for the blocks that are
// marked in its bitmap or written by records behind the tail here.
struct DirtySlot {
  ReplicaId peer = 0;  // 0: not in use
  bool known = false;  // else nothing is known of it, and the bitmap means nothing
  Epoch since_epoch;
  LogMark since;
  bool operator==(const DirtySlot&) const = default;
};

// Both histories hold what the other lacks, and somebody may rely on it. It stands until one of the two is
// given up.
struct SplitBrain {
  ReplicaId with = 0;
  // The newest record that both are known to have. 0: nothing shows that they had anything in common.
  // nullopt: nobody has looked yet.
  std::optional<Lsn> parted;
  bool operator==(const SplitBrain&) const = default;
};

struct Superblock {
  std::uint64_t generation = 0;
  std::uint64_t feature_incompat = 0;  // a bit that this program does not know: refuse the volume
  Uuid volume;
  ReplicaId replica = 0;
  std::uint32_t flags = 0;
  std::uint64_t volume_blocks = 0;
  std::uint64_t bitmap_offset = 0;  // bytes; bitmap_slots bitmaps of bitmap_bytes each, see bitmap.h
  std::uint64_t bitmap_bytes = 0;
  std::uint64_t digest_offset = 0;  // bytes; see digest.h
  std::uint64_t digest_bytes = 0;   // 0: this volume has none
  std::uint64_t ring_offset = 0;    // bytes
  std::uint64_t ring_bytes = 0;
  JournalPos tail_pos;                // where the scan starts
  LogMark tail;                       // the last record before tail_pos: all up to it is in the data area
  Epoch tail_epoch;                   // the epoch of that record
  Lsn commit;                         // highest LSN known committed when this was written
  std::uint64_t incarnation = 0;      // counts starts of the process and cuts of the log
  Lsn cut_lsn;                        // the last cut kept everything up to here ...
  std::uint64_t cut_incarnation = 0;  // ... and frames of earlier incarnations prove nothing beyond it
  DiskState disk;
  std::array<DirtySlot, bitmap_slots> dirty;
  EpochTable epochs;
  std::vector<SplitBrain> split_brains;
  std::uint64_t arbiter = 0;  // who decided about the newest epoch here, as a digest of its place; 0: not
                              // known
  // The newest epoch of the primary for which the log here was cut last. Until a record of it is here, the
  // log speaks of an older set only.
  EpochEntry cut_for;
  bool operator==(const Superblock&) const = default;
};

// Exactly block_size bytes.
void encode_superblock(const Superblock& sb, MutableByteSpan out);
// Reads versions 4 and 5 too, as what version 6 would say. Errc::not_found: no superblock here.
// Errc::corrupt: one was here and its CRC or fields are wrong.
Result<Superblock> decode_superblock(ByteSpan in);

// The last block of a data file that `create` made: tells which volume and replica the file belongs to.
struct DataLabel {
  Uuid volume;
  ReplicaId replica = 0;
  std::uint64_t volume_blocks = 0;
  bool operator==(const DataLabel&) const = default;
};
void encode_data_label(const DataLabel& label, MutableByteSpan out);
Result<DataLabel> decode_data_label(ByteSpan in);

}  // namespace twinloft::repl
