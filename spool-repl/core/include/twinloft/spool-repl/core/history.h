// Compares two histories: which records may be cut off, which replica may be filled, and when neither may
// give way. Pure functions. The rules are those of docs/formats/wire.md, "Rules".
//
// A history is a chain of records, written in epochs. An epoch has one writer and one in-sync set. A replica
// knows the last 16 epochs of its history (EpochTable), so a table may lack older epochs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>

#include "twinloft/spool-repl/format/disk_state.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl::core {

// The history of a replica.
struct History {
  ReplicaId replica = 0;
  // An arbiter grants every epoch, so that the epochs of all histories are one chain.
  bool one_chain = false;
  const EpochTable& epochs;
  EpochEntry newest;  // of the log. Without one: counter 0, all members under protocol C
  Epoch last_epoch;   // of the newest record, also if the table lacks it
  Lsn last, commit;   // the end of the log; the end of the records that are known to be committed

  // The log was cut for a primary, and no record of this primary has arrived since: the newest epoch of this
  // primary.
  std::optional<EpochEntry> cut_for;

  // The journal has lost records, or a resync is not complete.
  std::optional<std::variant<disk_state::Damaged, disk_state::Syncing>> incomplete;
};

// A primary's offer: its history from `from` on, which is the last common record in the primary's view.
struct Offer {
  ReplicaId primary = 0;
  Epoch epoch;
  const EpochTable& epochs;
  Lsn from;
};

namespace verdict {
struct Follow {};  // the offer continues this history
struct Cut {};     // the same, after a cut of the records after `from`. No client relies on them
struct Resync {};  // records are not enough: the primary may fill this replica
struct SplitBrain {
  std::string why;
};
}  // namespace verdict
using Verdict = std::variant<verdict::Follow, verdict::Cut, verdict::Resync, verdict::SplitBrain>;

// The answer to a *begin*: the primary would send its records after `from`.
Verdict judge_records(const History& here, const Offer& offer);
// The answer to a *sync begin*: the primary would overwrite the content. Resync or SplitBrain.
Verdict judge_resync(const History& here, const Offer& offer);

// The primary's decision before it sends an offer. common: the newest common record. commit: the end of the
// records that the peer knows to be committed. peer: the peer's state, if it is known. Follow: the primary
// may send *begin*.
Verdict judge_peer(Lsn common, Lsn commit, const NodeState* peer);

// Whether two secondaries have a split brain, by their states. False also if the tables do not reach back.
bool have_parted(const History& here, ReplicaId other, const NodeState& there);

// Whether the offered history has the content that an unfinished resync brought here (R9). True without such
// content. The primary itself checks for forced epochs (vouches_for).
bool holds_source(const History& here, const Offer& offer);
// Whether the content here is known to be the offered history at least up to `since` (R15). Then the source's
// marks have all missing blocks. `record_held`: the log here has the record that ends at `since`, or had it.
bool content_reaches(const History& here, const Offer& offer, Lsn since, bool record_held);
// The source's side of R15: whether the source's history has the base that an Inconsistent replica names.
// `held`: the table of the source's log, which ends at `last`. `offered`: the table with an epoch that is not
// logged yet.
bool vouches_for(const NodeState& target, std::span<const EpochEntry> held, Lsn last,
                 std::span<const EpochEntry> offered);

// What a promotion knows when it begins its epoch.
struct PromotionFacts {
  ReplicaId replica = 0;
  const EpochTable& epochs;  // here
  const EpochTable& chain;   // ends in the epoch `newest`; empty if no connected replica has that table
  EpochEntry newest;         // the newest epoch known here or on a connected replica
  bool by_force = false;
  bool whole = false;      // no acknowledged write is known to be missing here
  bool witnessed = false;  // every member of `newest` is connected, and whole
};
// The circumstances of a promotion, as the record of its epoch stores them.
struct Grounds {
  std::uint32_t flags = 0;  // EpochFlags
  EpochMark granted_after = {};
};
Grounds grounds_of_promotion(const PromotionFacts& facts);  // R16

// Whether an epoch after `lsn` was begun by force, or may have been, because the table does not reach back.
bool maybe_forced_behind(std::span<const EpochEntry> epochs, Lsn lsn);
// Whether the history with this table, which ends at `end`, has the record that ends at `lsn` in `epoch`. LSN
// and epoch identify a record. False also if the table does not reach back.
bool history_holds(std::span<const EpochEntry> epochs, Lsn end, const Epoch& epoch, Lsn lsn);
// The LSN up to which both histories are certainly equal.
Lsn common_history(std::span<const EpochEntry> a, Lsn a_end, std::span<const EpochEntry> b, Lsn b_end);
std::string parting_text(Lsn common);  // LSN 0: no common record is known

}  // namespace twinloft::repl::core
