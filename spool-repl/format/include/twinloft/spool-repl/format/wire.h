// Messages between two replicas, and the frame that carries them. docs/formats/wire.md is the description.
//
// A message names the epoch of its sender's primary; core/ refuses what belongs to another one.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

inline constexpr std::uint16_t wire_version = 8;
inline constexpr std::uint32_t wire_header_bytes = 16;
inline constexpr std::uint32_t wire_payload_max = body_meta_bytes_max + 4096 +
                                                  record_payload_blocks_max * block_size;

// Primary to secondary, first message after the handshake: where are you?
struct MatchRequest {
  Epoch epoch;
  bool operator==(const MatchRequest&) const = default;
};
// Secondary's answer. `tail` is the oldest point that it can name, `last` its newest record.
struct MatchState {
  Epoch last_epoch;
  LogMark tail, last;
  Lsn commit;
  bool operator==(const MatchState&) const = default;
};
// Primary: do you have this record?
struct Probe {
  LogMark mark;
  bool operator==(const Probe&) const = default;
};
struct ProbeReply {
  LogMark mark;
  bool found = false;
  bool operator==(const ProbeReply&) const = default;
};
// Primary: our histories are equal up to here; drop what you have beyond it, records follow.
struct Begin {
  Epoch epoch;
  LogMark from;
  Lsn holds{};          // what the secondary has acknowledged before, as a member; 0: nothing that counts
  EpochTable epochs{};  // the primary's table, oldest first: the secondary itself looks whether it may drop
                        // anything
  bool operator==(const Begin&) const = default;
};
// One body. On the wire: meta length, meta, payload.
struct RecordMessage {
  Epoch epoch;                     // the sender's, not necessarily the record's own
  std::vector<std::byte> meta;     // body meta
  std::vector<std::byte> payload;  // payload blocks
  bool operator==(const RecordMessage&) const = default;
};
// Secondary: everything up to `received` is in memory, up to `durable` on disk. Cumulative.
struct Ack {
  Epoch epoch;
  Lsn received;
  LogMark durable;
  bool operator==(const Ack&) const = default;
};
// Primary: everything up to here is durable on every member of the in-sync set.
struct Commit {
  Epoch epoch;
  LogMark mark;
  bool operator==(const Commit&) const = default;
};
// Either side, before it closes: why it will not go on. Shown to the administrator on both sides.
struct Refuse {
  std::string reason;
  bool split_brain = false;  // it is for that
  bool operator==(const Refuse&) const = default;
};

// Both, first message after the handshake and whenever something of it changes: who am I in this volume?
struct NodeState {
  bool primary = false;
  bool inconsistent = false;  // a resync into this replica has not been finished
  bool whole = false;  // its log is not empty, and nothing that it has acknowledged is known to be missing
  // Inconsistent: up to here the content was the history of `epochs` before that began. nullopt: not known.
  std::optional<LogPoint> base = LogPoint{};
  std::uint64_t newest_epoch = 0;  // highest epoch counter ever heard of; a new epoch takes a higher one
  EpochEntry epoch;                // newest one in the log here; zeros where it holds none
  LogMark last;
  Lsn commit;
  EpochTable epochs{};  // the table here, oldest first: what that epoch came after
  bool operator==(const NodeState&) const = default;
};
// A secondary that is to be promoted: do not promote yourself, and say whether something speaks against it.
struct Claim {
  Uuid attempt;
  bool operator==(const Claim&) const = default;
};
struct ClaimReply {
  Uuid attempt;
  bool granted = false;
  std::string why;  // where not granted
  bool operator==(const ClaimReply&) const = default;
};

// Primary: the journals have nothing in common, or no longer. Forget your log, keep in mind that your data
// area means nothing yet, and go on from my tail; records follow, and among them blocks of the volume: unless
// `whole` only those that were written behind `since`, if your content is my history up to there or beyond.
struct SyncBegin {
  Epoch epoch;
  LogMark from;
  Epoch from_epoch;  // of the record that ends there
  bool whole = true;
  Epoch since_epoch;
  LogMark since;
  EpochTable epochs;  // the primary's table, oldest first
  bool operator==(const SyncBegin&) const = default;
};
struct SyncReady {
  Epoch epoch;
  LogMark from;
  bool whole = true;  // as asked, or the replica cannot vouch for its content at `since`
  bool operator==(const SyncReady&) const = default;
};
// Content of the volume as of this place in the stream, newest version.
struct SyncData {
  Epoch epoch;
  std::uint64_t seq = 0;  // 1, 2, ... on each connection
  std::vector<Extent> extents;
  std::vector<std::byte> payload;  // of the data extents, in order
  bool operator==(const SyncData&) const = default;
};
// Digests of blocks as of this place in the stream: which of them do you not have?
struct SyncCheck {
  Epoch epoch;
  std::uint64_t seq = 0;   // 1, 2, ... on each connection
  std::uint64_t word = 0;  // blocks 64 * word and the 63 behind it
  std::uint64_t mask = 0;  // of these, bit 0 the first
  std::vector<Hash128> digests;
  bool operator==(const SyncCheck&) const = default;
};
// Target's answer, in the order of the checks.
struct SyncDiffer {
  Epoch epoch;
  std::uint64_t seq = 0;
  std::uint64_t mask = 0;
  bool operator==(const SyncDiffer&) const = default;
};
// Everything up to `seq` that was not declined is durable in the data area, and the same `seq` again says
// that its disk goes on; or `seq` is declined: send it again later.
struct SyncAck {
  Epoch epoch;
  std::uint64_t seq = 0;
  bool declined = false;
  bool operator==(const SyncAck&) const = default;
};
// All of the volume was sent; once everything up to `until` is committed here, the content means something
// again.
struct SyncEnd {
  Epoch epoch;
  Lsn until;
  bool operator==(const SyncEnd&) const = default;
};
// How far the resync is, for the target's status; nothing rests on it.
struct SyncProgress {
  Epoch epoch;
  std::uint64_t done = 0, total = 0;  // blocks, sent or found equal
  bool operator==(const SyncProgress&) const = default;
};
inline constexpr std::uint32_t sync_extents_max = 512;

// Either side, of a block that its own data area does not give: what does it hold? The answer is committed
// content, of a moment at which at least everything up to `after` was committed.
struct FetchBlock {
  Epoch epoch;
  std::uint64_t seq = 0;  // ascending on each connection
  Lba lba;
  Lsn after;
  bool operator==(const FetchBlock&) const = default;
};
// The newest committed content as of `as_of`; or it cannot be had here.
struct FetchedBlock {
  enum class Kind : std::uint8_t { nothing = 0, data = 1, zeros = 2 };
  Epoch epoch;
  std::uint64_t seq = 0;
  Kind kind = Kind::nothing;
  Lsn as_of;
  std::vector<std::byte> content;  // of `data`: one block
  bool operator==(const FetchedBlock&) const = default;
};

using PeerMessage = std::variant<MatchRequest, MatchState, Probe, ProbeReply, Begin, RecordMessage, Ack,
                                 Commit, Refuse, NodeState, Claim, ClaimReply, SyncBegin, SyncReady, SyncData,
                                 SyncAck, SyncEnd, SyncCheck, SyncDiffer, SyncProgress, FetchBlock,
                                 FetchedBlock>;

// Types 1..31 are handshake and liveness messages, known to net/ alone; 32 and up are PeerMessage
// alternatives.
enum class WireType : std::uint16_t {
  hello = 1,
  proof = 2,
  ping = 3,
  challenge = 4,
  trial = 5,
  trial_taken = 6,
  first_peer_message = 32
};

struct WireHeader {
  std::uint16_t type = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_crc = 0;
};
// Exactly wire_header_bytes: magic, version, type, length, CRC32C of the payload.
void encode_wire_header(const WireHeader& header, MutableByteSpan out);
Result<WireHeader> decode_wire_header(ByteSpan in);

std::uint16_t wire_type(const PeerMessage& message);
// Appends the payload of the message.
void encode_peer_message(const PeerMessage& message, std::vector<std::byte>& out);
Result<PeerMessage> decode_peer_message(std::uint16_t type, ByteSpan payload);

// The part of a record message before its body, for senders that send the body from where it lies.
void encode_record_prefix(const Epoch& epoch, std::uint32_t meta_bytes, std::vector<std::byte>& out);
inline constexpr std::uint32_t record_prefix_bytes = 28;

}  // namespace twinloft::repl
