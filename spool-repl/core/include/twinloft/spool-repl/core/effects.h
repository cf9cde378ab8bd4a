// What goes into the core and what comes out of it. The core performs nothing itself: the shell in daemon/,
// or the simulator, performs the effects and reports each disk operation's end by its token.
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
#include "twinloft/spool-repl/format/home_map.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl::core {

using Token = std::uint64_t;

// ---- events
// ------------------------------------------------------------------------------------------------------

enum class ClientOp : std::uint8_t { read, write, flush, trim, write_zeroes };

// A request of a front end; same meaning as ports::IoRequest. `data` stays valid until the completion.
struct ClientRequest {
  ClientOp op = ClientOp::read;
  bool fua = false;
  std::uint64_t offset = 0;  // bytes
  std::uint32_t length = 0;  // bytes
  std::byte* data = nullptr;
  std::uint64_t id = 0;  // given back in Complete
};

struct DiskDone {  // of a JournalWrite, HomeRead, HomeWrite, HomeZero, HomeSync, BitmapWrite, SuperblockWrite
                   // or ArchiveTail
  Token token = 0;
  int error = 0;  // errno
};
struct JournalReadDone {
  Token token = 0;
  int error = 0;
  std::vector<std::byte> bytes;
};
struct PeerUp {  // authenticated, of this volume, empty of messages
  ReplicaId peer = 0;
};
struct PeerDown {
  ReplicaId peer = 0;
};
struct PeerUnfit {  // it has proved itself, and is configured otherwise: there is no connection until both
                    // agree
  ReplicaId peer = 0;
  std::string why;
  bool other_arbiter = false;  // also that: either of the two may be promoted without the other
};
struct PeerInput {
  ReplicaId peer = 0;
  PeerMessage message;
};
struct CheckpointNow {};  // write home all that is committed (clean stop)

// What the arbiter keeps: who writes, and which replicas hold everything that was acknowledged. It is changed
// only by compare-and-swap; `attempt` tells one's own change from somebody else's equal one after an unknown
// outcome.
struct EpochValue {
  Epoch epoch;
  ReplicaId writer = 0;
  ReplicaSet in_sync = 0;
  Uuid attempt;
  bool by_force = false;  // an administrator overruled the value before; for as long as no durable record
                          // tells
  bool operator==(const EpochValue&) const = default;
};

struct Promote {  // become primary; answered by CommandDone
  Token token = 0;
  bool force = false;
  bool accept_loss = false;  // and although this replica's journal has lost what it had acknowledged
};
struct Demote {  // the front ends are closed; become secondary once everything is on the in-sync replicas
  Token token = 0;
};
// Give up this side of a split brain: secondary only. Answered by CommandDone when it is done, or when it is
// not to be.
struct Discard {
  Token token = 0;
  bool force = false;  // although nothing of the history here was found in the winner's
};
struct ArbiterAnswer {  // to an ArbiterRequest
  enum class Outcome : std::uint8_t {
    granted,  // `desired` is the arbiter's value now
    refused,  // the value is another one: `current`
    unknown,  // no answer: it may have been applied, and may still be
  };
  Token token = 0;
  Outcome outcome = Outcome::unknown;
  std::optional<EpochValue> current;  // nullopt: the arbiter holds none yet
  std::string why;                    // for people, where the outcome is unknown
};
struct Detach {};  // the device is taken away from its users: what waits, and what comes, fails with EIO

using Event = std::variant<ClientRequest, DiskDone, JournalReadDone, PeerUp, PeerDown, PeerUnfit, PeerInput,
                           CheckpointNow, Detach, Promote, Demote, Discard, ArbiterAnswer>;

// ---- effects
// -----------------------------------------------------------------------------------------------------

struct IoPiece {
  std::byte* data;
  std::uint32_t bytes;
};
// A piece right behind the last one in memory makes the last one longer.
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
struct HomeWrite {  // may stay in the disk's cache until a HomeSync submitted after its end
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
struct SuperblockWrite {  // first copy, sync, second copy, sync
  Token token;
  Superblock superblock;
};
struct ArchiveTail {  // keep these parts of the journal in a file of their own, durably: they are cut off
                      // next
  Token token;
  Lsn first, last;
  Epoch epoch;                                                 // of the last record
  std::vector<std::pair<std::uint64_t, std::uint32_t>> parts;  // offset and bytes, on the journal device, in
                                                               // order
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
  std::string text;  // for the administrator, in both cases
};
enum class Role : std::uint8_t { primary, secondary };
struct RoleChange {
  Role role;
  bool lost = false;  // no longer primary and not by request: the device is taken away from its users
};
struct Send {
  ReplicaId peer;
  PeerMessage message;
};
struct SendRecord {  // a RecordMessage whose body lies in the arena; consumed before the next step()
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
};
struct Notice {  // for log and events; rare
  bool serious;
  std::string text;
  NoticeKind kind = NoticeKind::other;
  ReplicaId peer = 0;       // whom it is about, 0: nobody else
  std::uint64_t epoch = 0;  // that it is about, 0: the one that the volume is in
};

// One batch. perform_in_order() has the one legal order, which is that of the fields: nothing is completed
// before what it rests on was handed over.
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
  std::vector<ArbiterRequest> arbiter_requests;
  std::vector<std::variant<Send, SendRecord>> sends;  // in order for each peer
  std::vector<ClosePeer> closes;
  std::vector<Notice> notices;
  std::vector<Complete> completions;  // before a change of the role: they are the old one's last
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
                    bitmap_writes, superblock_writes, archives, arbiter_requests, sends, closes, notices,
                    completions, role_changes, commands);
  }
};

// Hands each effect to performer.perform(effect), which may move from it; an overload for each kind.
// performer.all_sent() comes when the last message of the batch was handed over: until then the memory of
// records that are sent stays as it is.
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
