// The journal record: a body, which is equal on all replicas, in a frame of each replica.
// docs/formats/record.md describes the bytes. No other code encodes or decodes them.
//
//   frame header (64 bytes) | body meta | padding to 4 KiB | payload blocks
//
// Body meta is a fixed header, the extents, a CRC32C of each payload block, and the content of an epoch
// record. Bodies are a chain: body meta contains the hash of the previous body and a hash of the payload, and
// the hash of a body covers all of body meta. A peer receives body meta and payload, without the frame.
#pragma once

#include <span>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/epoch.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

inline constexpr std::uint32_t frame_header_bytes = 64;
inline constexpr std::uint32_t body_header_bytes = 128;
inline constexpr std::uint32_t record_payload_blocks_max = 512;  // 2 MiB
inline constexpr std::uint32_t record_extents_max = 1536;
inline constexpr std::uint32_t record_aux_bytes_max = 1024;
inline constexpr std::uint32_t body_meta_bytes_max = body_header_bytes + record_extents_max * 16 +
                                                     record_payload_blocks_max * 4 + record_aux_bytes_max;
inline constexpr std::uint32_t record_meta_blocks_max = (frame_header_bytes + body_meta_bytes_max +
                                                         block_size - 1) /
                                                        block_size;
inline constexpr std::uint32_t record_blocks_max = record_meta_blocks_max + record_payload_blocks_max;

enum class RecordType : std::uint16_t { data = 1, epoch = 2 };
enum class ExtentKind : std::uint16_t {
  data = 1,   // has `blocks` payload blocks, in the order of the extents
  zeros = 2,  // reads as zeros: trim and write-zeroes
};

struct Extent {
  Lba lba;
  std::uint32_t blocks = 0;
  ExtentKind kind = ExtentKind::data;
  auto operator<=>(const Extent&) const = default;
};

struct BodyHeader {
  RecordType type = RecordType::data;
  Uuid volume;
  Epoch epoch;
  Lsn first_lsn;
  std::uint32_t count = 0;  // LSNs of the record: one for each extent, or 1 for an epoch record
  Hash128 prev_hash;
  Hash128 payload_hash;
  std::uint32_t payload_blocks = 0;
  Lsn last_lsn() const { return {first_lsn.v + count - 1}; }
};

// A decoded body. `block_crc` has the result of block_crc() for each payload block.
struct Body {
  BodyHeader header;
  std::vector<Extent> extents;
  std::vector<std::uint32_t> block_crc;
  EpochChange epoch_change;  // for RecordType::epoch
  Hash128 hash;              // of this body, and prev_hash of the next body
  LogMark mark() const { return {header.last_lsn(), hash}; }
};

// prev_hash of the first record of a volume.
Hash128 genesis_hash(const Uuid& volume, std::uint64_t volume_blocks);

// CRC32C of a block, seeded with volume and address, so that a block at another address does not match.
std::uint32_t block_crc(const Uuid& volume, Lba lba, ByteSpan block);

// Appends body meta and sets body.hash. The caller keeps the limits above, which are checked by TL_CHECK.
void encode_body_meta(Body& body, std::vector<std::byte>& out);

// Decodes and verifies body meta: its hash, the limits, and that the extents are ordered, disjoint and within
// the volume. verify_payload() verifies the payload. Errors: Errc::corrupt with the reason; Errc::invalid for
// an intact body that needs features of a later release, so that it does not count as the end of the log.
Result<Body> decode_body_meta(ByteSpan meta, const Uuid& volume, std::uint64_t volume_blocks);

// Payload as blocks in order, each block_size long.
Hash128 hash_payload(std::span<const std::byte* const> blocks);
Status verify_payload(const Body& body, std::span<const std::byte* const> blocks);

struct FrameHeader {
  JournalPos pos;
  Lsn durable_lsn;                // highest LSN known durable on this replica when the record was submitted
  Lsn commit_lsn;                 // highest LSN known committed when the record was submitted
  std::uint64_t incarnation = 0;  // of this replica's journal, see superblock.h
  std::uint32_t total_blocks = 0;
  std::uint32_t meta_bytes = 0;  // of body meta, without padding
  ReplicaId replica = 0;
  Uuid volume;
};

// out: of frame_header_bytes bytes.
void encode_frame(const FrameHeader& frame, MutableByteSpan out);
// Errors: Errc::not_found (no magic of a frame), Errc::corrupt (a wrong CRC or field).
Result<FrameHeader> decode_frame(ByteSpan in, const Uuid& volume);

inline std::uint32_t meta_blocks_for(std::size_t meta_bytes) {
  return static_cast<std::uint32_t>((frame_header_bytes + meta_bytes + block_size - 1) / block_size);
}

}  // namespace twinloft::repl
