// Messages between two replicas, and their frame. docs/formats/wire.md describes the bytes.
//
// A message contains the epoch of its sender's primary. core/ refuses messages of another epoch.
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

// From the primary, its first message after the handshake: asks for the end of the secondary's log.
struct MatchRequest {
  Epoch epoch;
  bool operator==(const MatchRequest&) const = default;
};
// The secondary's answer. `tail` is the oldest point in its journal, `last` its newest record.
struct MatchState {
  Epoch last_epoch;
  LogMark tail, last;
  Lsn commit;
  bool operator==(const MatchState&) const = default;
};
// From the primary: asks whether the secondary has this record.
struct Probe {
  LogMark mark;
  bool operator==(const Probe&) const = default;
};
struct ProbeReply {
  LogMark mark;
  bool found = false;
  bool operator==(const ProbeReply&) const = default;
};
// From the primary: both histories are equal up to `from`. The secondary cuts its log there, and records
// follow.
struct Begin {
  Epoch epoch;
  LogMark from;
  Lsn holds{};          // the secondary has acknowledged up to here as a member of the set. 0: nothing
  EpochTable epochs{};  // the primary's table. The secondary itself decides whether it may cut its log
  bool operator==(const Begin&) const = default;
};
// A record body. On the wire: the length of meta, meta, payload.
struct RecordMessage {
  Epoch epoch;                     // of the sender; the record itself may be of an older epoch
  std::vector<std::byte> meta;     // body meta
  std::vector<std::byte> payload;  // payload blocks
  bool operator==(const RecordMessage&) const = default;
};
// From the secondary: it has everything up to `received` in memory, and up to `durable` on the disk.
struct Ack {
  Epoch epoch;
  Lsn received;
  LogMark durable;
  bool operator==(const Ack&) const = default;
};
// From the primary: everything up to `mark` is durable on every member of the in-sync set.
struct Commit {
  Epoch epoch;
  LogMark mark;
  bool operator==(const Commit&) const = default;
};
// From either side, before it closes the connection: the reason, which the status of both sides shows.
struct Refuse {
  std::string reason;
  bool split_brain = false;  // the reason is a split brain
  bool operator==(const Refuse&) const = default;
};

// From both sides, as the first message after the handshake and after each change: the replica's own state.
struct NodeState {
  bool primary = false;
  bool inconsistent = false;  // a resync into this replica is not complete
  bool whole = false;  // the log is not empty, and is not known to lack writes that it has acknowledged
  // For `inconsistent`: before the resync, the content was the history of `epochs` up to this point. nullopt:
  // unknown.
  std::optional<LogPoint> base = LogPoint{};
  std::uint64_t newest_epoch = 0;  // the highest epoch counter that is known; a new epoch has a higher one
  EpochEntry epoch;                // the newest epoch of the log; zeros for an empty log
  LogMark last;
  Lsn commit;
  EpochTable epochs{};  // the table of this replica: the epochs before `epoch`
  bool operator==(const NodeState&) const = default;
};
// From a secondary that wants to be promoted: asks the peer not to promote itself, and whether it objects.
struct Claim {
  Uuid attempt;
  bool operator==(const Claim&) const = default;
};
struct ClaimReply {
  Uuid attempt;
  bool granted = false;
  std::string why;  // the objection, if not granted
  bool operator==(const ClaimReply&) const = default;
};

// From the primary: the journals have no record in common. The target drops its log, marks itself
// Inconsistent, and continues from `from`. Records and blocks of the volume follow. Without `whole`, the
// blocks are those that were written after `since`, if the target's content includes the primary's history up
// to `since`.
struct SyncBegin {
  Epoch epoch;
  LogMark from;
  Epoch from_epoch;  // of the record that ends at `from`
  bool whole = true;
  Epoch since_epoch;
  LogMark since;
  EpochTable epochs;  // the primary's table, oldest first
  bool operator==(const SyncBegin&) const = default;
};
struct SyncReady {
  Epoch epoch;
  LogMark from;
  bool whole = true;  // all blocks are needed: the primary asked for it, or the content at `since` is
                      // uncertain
  bool operator==(const SyncReady&) const = default;
};
// The newest content of blocks, as of this position in the stream of messages.
struct SyncData {
  Epoch epoch;
  std::uint64_t seq = 0;  // 1, 2, ... on each connection
  std::vector<Extent> extents;
  std::vector<std::byte> payload;  // of the data extents, in order
  bool operator==(const SyncData&) const = default;
};
// Digests of blocks, as of this position in the stream: asks which blocks differ.
struct SyncCheck {
  Epoch epoch;
  std::uint64_t seq = 0;   // 1, 2, ... on each connection
  std::uint64_t word = 0;  // block 64 * word and the next 63
  std::uint64_t mask = 0;  // of these blocks; bit 0 is the first
  std::vector<Hash128> digests;
  bool operator==(const SyncCheck&) const = default;
};
// The target's answer: the blocks that differ. In the order of the checks.
struct SyncDiffer {
  Epoch epoch;
  std::uint64_t seq = 0;
  std::uint64_t mask = 0;
  bool operator==(const SyncDiffer&) const = default;
};
// From the target: everything up to `seq`, without declined messages, is durable in the data area. The same
// `seq` again means that its disk makes progress. Or: `seq` is declined, and has to be sent again later.
struct SyncAck {
  Epoch epoch;
  std::uint64_t seq = 0;
  bool declined = false;
  bool operator==(const SyncAck&) const = default;
};
// From the primary: the whole volume was sent. The target is consistent once everything up to `until` is
// committed.
struct SyncEnd {
  Epoch epoch;
  Lsn until;
  bool operator==(const SyncEnd&) const = default;
};
// The progress of the resync, only for the target's status.
struct SyncProgress {
  Epoch epoch;
  std::uint64_t done = 0, total = 0;  // blocks that were sent or found equal
  bool operator==(const SyncProgress&) const = default;
};
inline constexpr std::uint32_t sync_extents_max = 512;

// From either side, for a block that it cannot read from its own data area: asks for the block's content. The
// answer is committed content, at a moment when at least everything up to `after` was committed.
struct FetchBlock {
  Epoch epoch;
  std::uint64_t seq = 0;  // ascending on each connection
  Lba lba;
  Lsn after;
  bool operator==(const FetchBlock&) const = default;
};
// The newest committed content as of `as_of`, or `nothing` if this replica cannot supply it.
struct FetchedBlock {
  enum class Kind : std::uint8_t { nothing = 0, data = 1, zeros = 2 };
  Epoch epoch;
  std::uint64_t seq = 0;
  Kind kind = Kind::nothing;
  Lsn as_of;
  std::vector<std::byte> content;  // one block, for `data`
  bool operator==(const FetchedBlock&) const = default;
};

// From the primary, over a buffered link, every second while the numbers change: what the receiver lacks, as
// the primary knows. A forced promotion of the receiver reports it.
struct Behind {
  Epoch epoch;
  Lsn last;                        // the newest record of the primary
  Lsn durable;                     // the receiver has acknowledged everything up to here
  std::uint64_t bytes = 0;         // of the primary's journal between the two
  std::uint64_t milliseconds = 0;  // since the oldest of these records was written
  bool operator==(const Behind&) const = default;
};
// From the primary, to the other replicas: what the replica `of`, behind a buffered link, needs. The receiver
// keeps the records after `durable` for it, and continues from them if it becomes the primary.
struct KeepFor {
  Epoch epoch;
  ReplicaId of = 0;
  bool nothing = false;  // records no longer suffice: `of` needs a resync
  LogMark durable;       // `of` has everything up to here
  bool operator==(const KeepFor&) const = default;
};

// From the primary, to a member of the in-sync set: asks for committed content, as of a moment when at least
// everything up to `after` was committed.
struct ReadBlocks {
  Epoch epoch;
  std::uint64_t seq = 0;  // ascending within a term of the primary
  Lba lba;
  std::uint32_t blocks = 0;
  Lsn after;
  bool operator==(const ReadBlocks&) const = default;
};
inline constexpr std::uint32_t read_blocks_max = 256;  // of one question
// The newest committed content as of `as_of`, or no block if this replica cannot supply it now.
struct BlocksRead {
  Epoch epoch;
  std::uint64_t seq = 0;
  Lsn as_of;
  std::uint32_t blocks = 0;          // as asked; 0: declined
  std::vector<std::uint64_t> zeros;  // a bit for each block that is all zeros
  std::vector<std::byte> content;    // of the other blocks, in order
  bool operator==(const BlocksRead&) const = default;
};

// ---- relays: the record bodies for a replica come from another replica, its relay
// (docs/decisions/relays.md)

// From the primary: where the receiver gets the records that follow. `relay` 0: from the primary itself.
// Records that the receiver has not journaled yet are dropped, and come again.
struct TakeFrom {
  Epoch epoch;
  std::uint64_t seq = 0;  // ascending within a term of the primary
  ReplicaId relay = 0;
  bool operator==(const TakeFrom&) const = default;
};
// The answer: the records after this mark are awaited.
struct TakeAfter {
  Epoch epoch;
  std::uint64_t seq = 0;
  LogMark mark;
  bool operator==(const TakeAfter&) const = default;
};
// From the primary, in place of records: their marks. The receiver takes a record from its relay only if the
// record has the next mark.
struct RecordMarks {
  Epoch epoch;
  std::uint64_t seq = 0;
  std::vector<LogMark> marks;  // 1 to record_marks_max
  bool operator==(const RecordMarks&) const = default;
};
inline constexpr std::uint32_t record_marks_max = 1024;
// To the primary: the relay does not send the records.
struct RelayLost {
  Epoch epoch;
  std::uint64_t seq = 0;
  std::string why;
  bool operator==(const RelayLost&) const = default;
};
// To the relay: asks for the records after this mark. Epoch and number are those of TakeFrom. A later
// question replaces it.
struct Subscribe {
  Epoch epoch;
  std::uint64_t seq = 0;
  LogMark after;
  bool operator==(const Subscribe&) const = default;
};
// From the relay: the records follow, as RecordMessage.
struct Subscribed {
  Epoch epoch;
  std::uint64_t seq = 0;
  bool operator==(const Subscribed&) const = default;
};
// To the relay: the records up to `received` are in memory here, and those up to `durable` on the disk.
struct Taken {
  Epoch epoch;
  std::uint64_t seq = 0;
  Lsn received, durable;
  bool operator==(const Taken&) const = default;
};
// From either of the two: no more records.
struct SubscriptionEnded {
  Epoch epoch;
  std::uint64_t seq = 0;
  std::string why;
  bool operator==(const SubscriptionEnded&) const = default;
};

using PeerMessage = std::variant<MatchRequest, MatchState, Probe, ProbeReply, Begin, RecordMessage, Ack,
                                 Commit, Refuse, NodeState, Claim, ClaimReply, SyncBegin, SyncReady, SyncData,
                                 SyncAck, SyncEnd, SyncCheck, SyncDiffer, SyncProgress, FetchBlock,
                                 FetchedBlock, Behind, KeepFor, ReadBlocks, BlocksRead, TakeFrom, TakeAfter,
                                 RecordMarks, RelayLost, Subscribe, Subscribed, Taken, SubscriptionEnded>;

// Types 1 to 31 are messages of the handshake and of liveness, which only net/ uses. Types from 32 on are the
// alternatives of PeerMessage.
enum class WireType : std::uint16_t {
  hello = 1,
  proof = 2,
  ping = 3,
  challenge = 4,
  trial = 5,
  trial_taken = 6,
  short_record = 7,  // short_record.h; only after the handshake
  join_path = 8,     // in place of a hello: a further path of a link
  path_joined = 9,   // its answer
  first_peer_message = 32
};

struct WireHeader {
  std::uint16_t type = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_crc = 0;
};
// Magic, version, type, length, and CRC32C of the payload. out: of wire_header_bytes bytes. Errors of
// decoding: Errc::corrupt, or Errc::conflict for another version.
void encode_wire_header(const WireHeader& header, MutableByteSpan out);
Result<WireHeader> decode_wire_header(ByteSpan in);

std::uint16_t wire_type(const PeerMessage& message);
// Appends the payload of the message.
void encode_peer_message(const PeerMessage& message, std::vector<std::byte>& out);
Result<PeerMessage> decode_peer_message(std::uint16_t type, ByteSpan payload);

// Appends the part of a record message before its body, for a sender that does not copy the body.
void encode_record_prefix(const Epoch& epoch, std::uint32_t meta_bytes, std::vector<std::byte>& out);
inline constexpr std::uint32_t record_prefix_bytes = 28;

}  // namespace twinloft::repl
