// Judges what two histories mean to each other: which records may be cut off, which replica may be filled,
// and when neither may give way. No state, no I/O. The rules are those of docs/formats/wire.md, "Rules".
//
// A history is a chain of records, written in epochs. An epoch has one writer and one in-sync set. A replica
// knows the last 16 epochs of its history (EpochTable), so a judgement sometimes has to do with a table that
// has forgotten.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>

#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl::core {

// The history that a replica holds.
struct History {
  ReplicaId replica = 0;
  // One arbiter grants every epoch: the epochs of all histories are one chain.
  bool one_chain = false;
  const EpochTable& epochs;
  EpochEntry newest;  // of the log. Without one: counter 0, all members under protocol C
  Epoch last_epoch;   // of the newest record, also where the table does not have it
  Lsn last, commit;   // end of the log; known here as committed

  // The log was cut for a primary, and no record of that primary has come since: the newest epoch of that
  // primary.
  std::optional<EpochEntry> cut_for;

  // The journal was damaged and has lost records: everything up to `until`, in epoch `of`, was committed
  // here.
  struct Damage {
    EpochEntry newest;  // of what was here
    Lsn until;
    Epoch of;
  };
  // A resync was not finished: up to `base` the content was this history before.
  struct Fragment {
    Epoch base_epoch;
    std::optional<Lsn> base;  // nullopt: nothing is known of the content
  };
  std::optional<std::variant<Damage, Fragment>> incomplete;
};

// What a primary offers: its history from the record `from` on, which it takes for the last common one.
struct Offer {
  ReplicaId primary = 0;
  Epoch epoch;
  const EpochTable& epochs;
  Lsn from;
};

namespace verdict {
struct Follow {};  // the offer continues what is here
struct Cut {};     // it does once the records behind `from` are cut off; nobody relies on them
struct Resync {};  // records alone do not suffice: the primary may fill this replica
struct SplitBrain {
  std::string why;
};
}  // namespace verdict
using Verdict = std::variant<verdict::Follow, verdict::Cut, verdict::Resync, verdict::SplitBrain>;

// To a *begin*: the primary would send its records behind `from`.
Verdict judge_records(const History& here, const Offer& offer);
// To a *sync begin*: the primary would overwrite what is here. Never Follow or Cut.
Verdict judge_resync(const History& here, const Offer& offer);

// The primary's own judgement before either: `common` is the newest record that both have, `commit` what the
// peer knows as committed. `peer`: what it says of itself, where it has. Follow: the primary may send
// *begin*.
Verdict judge_peer(Lsn common, Lsn commit, const NodeState* peer);

// Whether two secondaries have parted, by what each says of itself. False also where the tables do not tell.
bool have_parted(const History& here, ReplicaId other, const NodeState& there);

// Whether some epoch behind `lsn` was begun by force, or may have been: the table does not reach back so far.
bool maybe_forced_behind(std::span<const EpochEntry> epochs, Lsn lsn);
// Whether the history with this table, which ends at `end`, holds the record that ends at `lsn` in `epoch`.
// Place and epoch name one record. False also where the table does not reach back so far.
bool history_holds(std::span<const EpochEntry> epochs, Lsn end, const Epoch& epoch, Lsn lsn);
// How far both histories are equal, at least.
Lsn common_history(std::span<const EpochEntry> a, Lsn a_end, std::span<const EpochEntry> b, Lsn b_end);
std::string parting_text(Lsn common);  // LSN 0: no common record is known

}  // namespace twinloft::repl::core
