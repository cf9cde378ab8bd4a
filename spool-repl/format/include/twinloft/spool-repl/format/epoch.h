// Epochs as records, superblock and wire have them: one encoder, one decoder, one set of checks for all
// three. docs/formats/record.md and superblock.md describe the bytes.
#pragma once

#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

inline constexpr std::uint32_t epoch_table_max = 16;

enum EpochFlags : std::uint32_t {
  epoch_by_force = 1,   // an administrator's word stands in for the arbiter's: others may hold what this
                        // history lacks
  epoch_witnessed = 2,  // a promotion with every other member of its set connected, and none of them had lost
                        // anything
  epoch_lossy = 4,      // its writer was promoted although something that it had acknowledged was known to be
                        // missing there
};

// Names an epoch by 29 bits of its id. 0: no epoch.
struct EpochMark {
  std::uint32_t v = 0;
  auto operator<=>(const EpochMark&) const = default;
};
EpochMark mark_of(const Epoch& epoch);

// Contents of an epoch record: the first record that a new primary writes, and every change of the in-sync
// set.
struct EpochChange {
  Epoch epoch;
  ReplicaId writer = 0;
  ReplicaSet in_sync = 0;
  std::uint32_t flags = 0;  // EpochFlags
  // The epoch that this one was granted after: everything that was acknowledged in it was here. 0: none.
  EpochMark granted_after = {};
  auto operator<=>(const EpochChange&) const = default;
};

// The same with its place: a line of the epoch table.
struct EpochEntry {
  Epoch epoch;
  Lsn start;
  ReplicaId writer = 0;
  ReplicaSet in_sync = 0;
  std::uint32_t flags = 0;  // EpochFlags
  EpochMark granted_after = {};
  auto operator<=>(const EpochEntry&) const = default;
};
bool comes_after(const EpochEntry& entry, const Epoch& before);
EpochEntry entry_of(const EpochChange& change, Lsn start);

// Promotions by force that have left the table. By force stays by force: a table that does not tell of it
// would let a history be overwritten that lacks it.
struct ForgottenForce {
  Epoch epoch;  // the newest of them; a nil id: not known whether there was one, up to that counter
  Lsn start;
  ReplicaSet writers = 0;  // of all of them; 0: there was none
  bool operator==(const ForgottenForce&) const = default;
};

// The newest epochs of one history, oldest first.
struct EpochTable : std::vector<EpochEntry> {
  using std::vector<EpochEntry>::vector;
  ForgottenForce forgotten_force;
  bool operator==(const EpochTable&) const = default;

  // What begins there or later was another history's; of more than fit the oldest goes. That it was lossy, or
  // by force, is kept.
  void note(const EpochEntry& entry);
  // Without what begins behind that point.
  void cut_behind(Lsn lsn);
  bool holds(const Epoch& epoch) const;
  // Some epoch that begins behind that point was begun by force, also one that has left the table.
  bool by_force_behind(Lsn lsn) const;
};

// Who promoted itself by force in epochs that `there` has forgotten, and that are not known to be in the
// history of `here`.
ReplicaSet forcers_unknown_to(const EpochTable& here, const EpochTable& there);

// How an entry carries `granted_after`.
enum class EntryForm {
  in_flags,   // in the upper 29 bits of the flags: records, the wire, and superblocks before version 6
  own_field,  // superblocks
};
constexpr std::uint32_t entry_bytes(EntryForm form) {
  return form == EntryForm::in_flags ? 48 : 52;
}
inline constexpr std::uint32_t epoch_change_bytes = 40;

void put_epoch(Writer& w, const Epoch& epoch);
void put_change(Writer& w, const EpochChange& change);
void put_entry(Writer& w, const EpochEntry& entry, EntryForm form = EntryForm::in_flags);
void put_table(Writer& w, const EpochTable& table, EntryForm form = EntryForm::in_flags);
void put_forgotten_force(Writer& w, const ForgottenForce& force);

// Errc::corrupt: too short, a counter that nobody can have reached, a writer that is no replica, flags that
// there are not, too many epochs.
Result<Epoch> get_epoch(Reader& r);
Result<EpochChange> get_change(Reader& r);
Result<EpochEntry> get_entry(Reader& r, EntryForm form = EntryForm::in_flags);
Result<EpochTable> get_table(Reader& r, EntryForm form = EntryForm::in_flags);
// Where there may be none, or its record was lost: without a writer then.
Result<EpochEntry> get_entry_if_known(Reader& r, EntryForm form = EntryForm::in_flags);
Result<ForgottenForce> get_forgotten_force(Reader& r);
Status check_entry(const EpochEntry& entry, bool writer_known);
// Takes apart what the form in_flags carries in one field.
void set_flags(EpochEntry& entry, std::uint32_t in_flags);

}  // namespace twinloft::repl
