// The events and the effects of the core. The core performs no effect itself: the shell in daemon/ or the
// simulator performs them, and reports the end of each disk operation by its token.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/core/arena.h"
#include "twinloft/spool-repl/core/log.h"
#include "twinloft/spool-repl/core/read_policy.h"
#include "twinloft/spool-repl/format/home_map.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl::core {

using Token = std::uint64_t;

// ---- events

enum class ClientOp : std::uint8_t { read, write, flush, trim, write_zeroes };

// A request of a front end, as ports::IoRequest. `data` stays valid until Complete.
struct ClientRequest {
  ClientOp op = ClientOp::read;
  bool fua = false;
  std::uint64_t offset = 0;  // bytes
  std::uint32_t length = 0;  // bytes
  std::byte* data = nullptr;
  std::uint64_t id = 0;  // returned in Complete
};

struct DiskDone {  // of a JournalWrite, HomeRead, HomeWrite, HomeZero, HomeSync, BitmapWrite,
                   // SuperblockWrite, ArchiveTail or SpillWrite
  Token token = 0;
  int error = 0;  // errno
};
struct JournalReadDone {  // of a JournalRead or SpillRead
  Token token = 0;
  int error = 0;
  std::vector<std::byte> bytes;
};
struct PeerUp {  // connected and authenticated, of this volume, before its first message
  ReplicaId peer = 0;
  bool knows_buffers = true;  // it understands Behind and KeepFor
  bool knows_reads = true;    // it understands ReadBlocks
  bool knows_relays = true;   // it understands TakeFrom and the messages around it
};
struct PeerDown {
  ReplicaId peer = 0;
};
struct PeerUnfit {  // authenticated, but with other settings: no connection until both agree
  ReplicaId peer = 0;
  std::string why;
  bool other_arbiter = false;  // the arbiters differ, so that each replica may be promoted without the other
};
struct PeerInput {
  ReplicaId peer = 0;
  PeerMessage message;
};
struct CheckpointNow {};  // write everything committed home (clean stop)

// The arbiter's value: the writer, and the replicas that have everything that was acknowledged. It is changed
// only by compare-and-swap. After an unknown outcome, `attempt` distinguishes an own change from an equal
// change of another replica.
struct EpochValue {
  Epoch epoch;
  ReplicaId writer = 0;
  ReplicaSet in_sync = 0;
  Uuid attempt;
  bool by_force = false;  // an operator has overruled the previous value, and no durable record shows it yet
  bool operator==(const EpochValue&) const = default;
};

struct Promote {  // become primary; answered by CommandDone
  Token token = 0;
  bool force = false;
  bool accept_loss = false;  // also if this replica's journal has lost acknowledged writes
};
struct Demote {  // the front ends are closed; become secondary once everything is on the in-sync replicas
  Token token = 0;
};
// Discard this side of a split brain, on a secondary. Answered by CommandDone at the end, or with the
// refusal.
struct Discard {
  Token token = 0;
  bool force = false;  // also if the winner has nothing of this history
};
struct ArbiterAnswer {  // to an ArbiterRequest
  enum class Outcome : std::uint8_t {
    granted,  // `desired` is now the arbiter's value
    refused,  // the arbiter has another value: `current`
    unknown,  // no answer: the change may have been applied, or may still be applied
  };
  Token token = 0;
  Outcome outcome = Outcome::unknown;
  std::optional<EpochValue> current;  // nullopt: the arbiter has no value yet
  std::string why;                    // for the operator, if the outcome is unknown
};
struct SetReadPolicy {
  ReadPolicy policy;
};
struct Detach {};  // the device is taken away from its users: waiting and later requests fail with EIO

using Event = std::variant<ClientRequest, DiskDone, JournalReadDone, PeerUp, PeerDown, PeerUnfit, PeerInput,
                           CheckpointNow, SetReadPolicy, Detach, Promote, Demote, Discard, ArbiterAnswer>;

// ---- effects

struct IoPiece {
  std::byte* data;
  std::uint32_t bytes;
};
// Appends a piece. If it follows the last piece in memory, the last piece gets longer.
inline void add_piece(std::vector<IoPiece>& pieces, std::byte* data, std::uint32_t bytes) {
  if (!pieces.empty() && pieces.back().data + pieces.back().bytes == data)
    pieces.back().bytes += bytes;
  else
    pieces.push_back({data, bytes});
}
inline std::uint64_t bytes_of(const std::vector<IoPiece>& pieces) {
  std::uint64_t all = 0;
  for (const IoPiece& p : pieces) all += p.bytes;
  return all;
}

struct JournalWrite {  // durable when done
  Token token;
  std::uint64_t offset;  // bytes, on the journal device
  std::vector<IoPiece> pieces;
};
struct JournalRead {
  Token token;
  std::uint64_t offset;
  std::uint32_t bytes;
};
struct HomeRead {
  Token token;
  HomeOffset at;
  std::vector<IoPiece> pieces;
};
struct HomeWrite {  // may stay in the disk's cache until a HomeSync that is submitted after its end
  Token token;
  HomeOffset at;
  std::vector<IoPiece> pieces;
};
struct HomeZero {
  Token token;
  HomeOffset at;
  std::uint64_t blocks;
};
struct HomeSync {
  Token token;
};
struct BitmapWrite {  // durable when done
  Token token = 0;
  std::uint64_t offset = 0;  // bytes, on the journal device
  std::vector<std::byte> bytes;
};
struct SuperblockWrite {  // writes and syncs the first copy, then the second copy
  Token token;
  Superblock superblock;
};
struct ArchiveTail {  // copy these parts of the journal durably into a file, before they are cut off
  Token token;
  Lsn first, last;
  Epoch epoch;                                                 // of the last record
  std::vector<std::pair<std::uint64_t, std::uint32_t>> parts;  // offset and bytes, on the journal device, in
                                                               // order
};
struct SpillWrite {  // a chunk of the spill; durable when done
  Token token;
  std::uint64_t number;
  std::vector<std::byte> bytes;  // header and records (format/spill.h)
};
struct SpillRead {  // answered by JournalReadDone, with the whole chunk
  Token token;
  std::uint64_t number;
};
struct SpillDrop {  // of all chunks with smaller numbers; after the writes before it
  std::uint64_t before;
};
struct ArbiterRequest {
  Token token;
  bool read = false;                   // only read the value (linearizably)
  std::optional<EpochValue> expected;  // nullopt: none yet
  EpochValue desired;
};
struct CommandDone {  // of Promote, Demote and Discard
  Token token;
  bool ok;
  std::string text;  // for the operator, in both cases
};
enum class Role : std::uint8_t { primary, secondary };
struct RoleChange {
  Role role;
  bool lost = false;  // no longer primary without a request: the device is taken away from its users
};
struct Send {
  ReplicaId peer;
  PeerMessage message;
};
struct SendRecord {  // a RecordMessage with its body in the arena; consumed before the next step()
  ReplicaId peer;
  Epoch epoch;
  std::uint32_t meta_bytes;
  std::vector<IoPiece> pieces;  // body meta, then payload
};
struct ClosePeer {
  ReplicaId peer;
  std::string reason;
};
struct Complete {
  std::uint64_t id;
  int error;
};
enum class NoticeKind : std::uint8_t {
  other,
  role,
  member_removed,
  member_added,
  connected,
  disconnected,
  refused,
  split_brain,
  resync_begun,
  resync_finished,
  tail_cut,
  discarded,
  suspended,
  resumed,
  failed,
  repaired,
  unreadable,
  buffer_full,
  buffer_eased,
  relay,
};
struct Notice {  // for log and events; rare
  bool serious;
  std::string text;
  NoticeKind kind = NoticeKind::other;
  ReplicaId peer = 0;       // the other replica of the event; 0: none
  std::uint64_t epoch = 0;  // the epoch of the event; 0: the volume's present epoch
};

// A batch of effects. perform_in_order() has the only legal order, which is that of the fields: an effect
// comes after the effects that it depends on.
struct Output {
  std::vector<JournalWrite> journal_writes;
  std::vector<JournalRead> journal_reads;
  std::vector<HomeRead> home_reads;
  std::vector<HomeWrite> home_writes;
  std::vector<HomeZero> home_zeros;
  std::vector<HomeSync> home_syncs;
  std::vector<BitmapWrite> bitmap_writes;
  std::vector<SuperblockWrite> superblock_writes;
  std::vector<ArchiveTail> archives;
  std::vector<SpillWrite> spill_writes;
  std::vector<SpillRead> spill_reads;
  std::vector<SpillDrop> spill_drops;
  std::vector<ArbiterRequest> arbiter_requests;
  std::vector<std::variant<Send, SendRecord>> sends;  // in order for each peer
  std::vector<ClosePeer> closes;
  std::vector<Notice> notices;
  std::vector<Complete> completions;  // before a change of the role, since they belong to the old role
  std::vector<RoleChange> role_changes;
  std::vector<CommandDone> commands;
  // Each vector keeps its storage.
  bool empty() const;
  void clear();
  void swap(Output& other);

 private:
  template <class Performer>
  friend void perform_in_order(Output& out, Performer& performer);
  auto all() {
    return std::tie(journal_writes, journal_reads, home_reads, home_writes, home_zeros, home_syncs,
                    bitmap_writes, superblock_writes, archives, spill_writes, spill_reads, spill_drops,
                    arbiter_requests, sends, closes, notices, completions, role_changes, commands);
  }
};

// Calls performer.perform(effect) for each effect, with an overload for each kind, which may move from the
// effect. Calls performer.all_sent() after the last message of the batch: until then, the memory of sent
// records stays unchanged.
template <class Performer>
void perform_in_order(Output& out, Performer& performer) {
  auto each_of = [&](auto& effects) {
    using Effects = std::decay_t<decltype(effects)>;
    constexpr bool messages = std::is_same_v<Effects, decltype(out.sends)>;
    for (auto& effect : effects) {
      if constexpr (messages)
        std::visit([&](auto& message) { performer.perform(message); }, effect);
      else
        performer.perform(effect);
    }
    if constexpr (messages) performer.all_sent();
  };
  std::apply([&](auto&... effects) { (each_of(effects), ...); }, out.all());
}

}  // namespace twinloft::repl::core
