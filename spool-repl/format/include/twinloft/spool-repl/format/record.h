// The journal record: a body, equal on every replica, inside a frame that each replica makes for itself.
// docs/formats/record.md is the description; this is its only encoder and decoder.
//
//   frame header (64 bytes) | body meta | padding to 4 KiB | payload blocks
//
// Body meta is a fixed header, the extents, one CRC32C per payload block, and for an epoch record its
// contents. The body is chained: it holds the hash of the body before it, and its own hash covers all of body
// meta, which in turn holds a hash of the payload. What a peer receives is body meta and payload, nothing of
// the frame.
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
  data = 1,   // `blocks` payload blocks follow in the order of the extents
  zeros = 2,  // reads back as zeros; trim and write-zeroes
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
  std::uint32_t count = 0;  // LSNs that this record takes: its extents, or 1 for an epoch record
  Hash128 prev_hash;
  Hash128 payload_hash;
  std::uint32_t payload_blocks = 0;
  Lsn last_lsn() const { return {first_lsn.v + count - 1}; }
};

// A decoded body. `block_crc` holds the CRC32C of each payload block, see block_crc().
struct Body {
  BodyHeader header;
  std::vector<Extent> extents;
  std::vector<std::uint32_t> block_crc;
  EpochChange epoch_change;  // for RecordType::epoch
  Hash128 hash;              // of this body: the next one's prev_hash
  LogMark mark() const { return {header.last_lsn(), hash}; }
};

// The hash that the first record of a volume is chained to.
Hash128 genesis_hash(const Uuid& volume, std::uint64_t volume_blocks);

// CRC32C of one block, seeded with volume and address, so that a block found at another place does not match.
std::uint32_t block_crc(const Uuid& volume, Lba lba, ByteSpan block);

// Appends body meta and sets body.hash. Checks the limits above (they are the caller's duty).
void encode_body_meta(Body& body, std::vector<std::byte>& out);

// Decodes and verifies body meta (hash, limits, extents ordered, disjoint and within the volume). The payload
// is verified by verify_payload. Errc::corrupt with the reason otherwise; Errc::invalid for an intact body
// that needs features which this release lacks, so that nobody takes it for the end of the log.
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

// Exactly frame_header_bytes.
void encode_frame(const FrameHeader& frame, MutableByteSpan out);
// Errc::not_found where there is no frame's magic, Errc::corrupt where its CRC or fields do not fit.
Result<FrameHeader> decode_frame(ByteSpan in, const Uuid& volume);

inline std::uint32_t meta_blocks_for(std::size_t meta_bytes) {
  return static_cast<std::uint32_t>((frame_header_bytes + meta_bytes + block_size - 1) / block_size);
}

}  // namespace twinloft::repl
