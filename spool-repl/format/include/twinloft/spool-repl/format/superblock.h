// The superblock: a block of 4 KiB, with two copies at the start of the journal device (offsets below).
// docs/formats/superblock.md describes it. This is its only encoder and decoder.
//
// A change is written to the first copy, made durable, written to the second copy, made durable, and used
// only then. So the readable copy with the highest generation is right, and a single damaged copy is
// repaired from it.
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

// The known content of another replica: the history up to `since`, except for the blocks that are marked in
// its bitmap or written by records after the tail here.
struct DirtySlot {
  ReplicaId peer = 0;  // 0: not in use
  bool known = false;  // false: its content is unknown, and the bitmap has no meaning
  Epoch since_epoch;
  LogMark since;
  bool operator==(const DirtySlot&) const = default;
};

// Both histories have writes that the other lacks, and clients may rely on both. The state ends when one of
// the histories is given up.
struct SplitBrain {
  ReplicaId with = 0;
  // The newest record that both are known to have. 0: no common record is known. nullopt: unknown so far.
  std::optional<Lsn> parted;
  bool operator==(const SplitBrain&) const = default;
};

struct Superblock {
  std::uint64_t generation = 0;
  std::uint64_t feature_incompat = 0;  // with an unknown bit, the volume is refused
  Uuid volume;
  ReplicaId replica = 0;
  std::uint32_t flags = 0;
  std::uint64_t volume_blocks = 0;
  std::uint64_t bitmap_offset = 0;  // bytes; bitmap_slots bitmaps of bitmap_bytes each, see bitmap.h
  std::uint64_t bitmap_bytes = 0;
  std::uint64_t digest_offset = 0;  // bytes; see digest.h
  std::uint64_t digest_bytes = 0;   // 0: no digests
  std::uint64_t ring_offset = 0;    // bytes
  std::uint64_t ring_bytes = 0;
  JournalPos tail_pos;                // where the scan starts
  LogMark tail;                       // the last record before tail_pos: all up to it is in the data area
  Epoch tail_epoch;                   // the epoch of that record
  Lsn commit;                         // highest LSN known committed when this was written
  std::uint64_t incarnation = 0;      // counts starts of the process and cuts of the log
  Lsn cut_lsn;                        // the last cut kept everything up to here
  std::uint64_t cut_incarnation = 0;  // frames of earlier incarnations are void beyond cut_lsn
  DiskState disk;
  std::array<DirtySlot, bitmap_slots> dirty;
  EpochTable epochs;
  std::vector<SplitBrain> split_brains;
  std::uint64_t arbiter = 0;  // a digest of the address of the newest epoch's arbiter; 0: unknown
  // The newest epoch of the primary for which this log was cut last. Until a record of this epoch is here,
  // the log shows only an older set.
  EpochEntry cut_for;
  bool operator==(const Superblock&) const = default;
};

// Returns exactly block_size bytes.
void encode_superblock(const Superblock& sb, MutableByteSpan out);
// Also reads versions 4 and 5, as version 6. Errors: Errc::not_found (no superblock), Errc::corrupt (a
// superblock with a wrong CRC or field).
Result<Superblock> decode_superblock(ByteSpan in);

// The last block of a data file from `create`: the volume and the replica that own the file.
struct DataLabel {
  Uuid volume;
  ReplicaId replica = 0;
  std::uint64_t volume_blocks = 0;
  bool operator==(const DataLabel&) const = default;
};
void encode_data_label(const DataLabel& label, MutableByteSpan out);
Result<DataLabel> decode_data_label(ByteSpan in);

}  // namespace twinloft::repl
