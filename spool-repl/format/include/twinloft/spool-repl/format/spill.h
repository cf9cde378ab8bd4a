// A chunk of the spill: consecutive records of a journal, which a replica behind a buffered link lacks.
// docs/formats/spill.md describes the bytes.
//
//   header (4 KiB) | records, as they are in the journal (record.h)
//
// The chunks of a replica are numbered, and each continues the one before. The spill is a cache: without it,
// the far replica needs a resync.
#pragma once

#include <functional>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

inline constexpr std::uint32_t spill_header_bytes = block_size;
inline constexpr std::uint32_t spill_chunk_bytes_max = 4u << 20;  // of records
static_assert(spill_chunk_bytes_max >= record_blocks_max * block_size);

struct SpillChunk {
  std::uint64_t number = 0;
  LogMark before, last;  // of the records before the chunk, and of its last record
  JournalPos from, to;   // the positions of the records in the journal: its first byte, and the byte after
  std::uint32_t records = 0;
  std::uint32_t bytes = 0;  // of the records, without the header
  std::uint32_t crc = 0;    // CRC32C of the records
  bool operator==(const SpillChunk&) const = default;
};

// out: of spill_header_bytes bytes.
void encode_spill_header(const SpillChunk& chunk, const Uuid& volume, ReplicaId replica, MutableByteSpan out);
// Errors: Errc::corrupt (no header, a wrong CRC or field), Errc::conflict (of another volume or replica),
// Errc::invalid (of a later release).
Result<SpillChunk> decode_spill_header(ByteSpan in, const Uuid& volume, ReplicaId replica);

// A whole chunk. Errors: as decode_spill_header(), and Errc::corrupt for other records than the header names.
Result<SpillChunk> decode_spill_chunk(ByteSpan in, const Uuid& volume, ReplicaId replica);

// Reads a chunk: the whole, or at least its header.
using ReadSpillChunk = std::function<Result<std::vector<std::byte>>(std::uint64_t number, bool whole)>;
// Those of the chunks that continue each other up to the newest intact one, oldest first. Only the newest are
// read as a whole: a crash damages no others. numbers: ascending.
std::vector<SpillChunk> usable_spill(const std::vector<std::uint64_t>& numbers, const ReadSpillChunk& read,
                                     const Uuid& volume, ReplicaId replica);

// A record as it is in the journal, at the beginning of `in`. The spans refer to `in`.
struct StoredBytes {
  Body body;
  ByteSpan meta, payload;
  std::uint32_t bytes = 0;  // of the whole record
};
// Verifies the frame, the body and the payload. Errors: Errc::corrupt, Errc::invalid (see
// decode_body_meta()).
Result<StoredBytes> decode_stored_record(ByteSpan in, const Uuid& volume, std::uint64_t volume_blocks);

}  // namespace twinloft::repl
