// Epochs in records, in the superblock and on the wire: the encoder, the decoder and the checks of all three.
// docs/formats/record.md and superblock.md describe the bytes.
#pragma once

#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl {

inline constexpr std::uint32_t epoch_table_max = 16;

enum EpochFlags : std::uint32_t {
  epoch_by_force = 1,   // promoted by `--force` in place of the arbiter's permission: other replicas may have
                        // writes that this history lacks
  epoch_witnessed = 2,  // promoted while every other member of the set was connected and had all it had
                        // acknowledged
  epoch_lossy = 4,  // the writer was promoted although it was known to lack writes that it had acknowledged
};

// Names an epoch by 29 bits of its id. 0: no epoch.
struct EpochMark {
  std::uint32_t v = 0;
  auto operator<=>(const EpochMark&) const = default;
};
EpochMark mark_of(const Epoch& epoch);

// The content of an epoch record. A new primary writes one first, and one for each change of the in-sync set.
struct EpochChange {
  Epoch epoch;
  ReplicaId writer = 0;
  ReplicaSet in_sync = 0;
  std::uint32_t flags = 0;  // EpochFlags
  // The epoch after which this one was granted: the writer had everything that was acknowledged in it. 0:
  // none.
  EpochMark granted_after = {};
  auto operator<=>(const EpochChange&) const = default;
};

// An epoch change with its LSN: a row of the epoch table.
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

// The promotions by force that the table no longer has. Without this, such a history could overwrite another
// history that lacks the promotion.
struct ForgottenForce {
  Epoch epoch;  // of the newest promotion. With a nil id: up to this counter, promotions may be unknown
  Lsn start;
  ReplicaSet writers = 0;  // of all these promotions. 0: there was none
  bool operator==(const ForgottenForce&) const = default;
};

// The newest epochs of a history, oldest first.
struct EpochTable : std::vector<EpochEntry> {
  using std::vector<EpochEntry>::vector;
  ForgottenForce forgotten_force;
  bool operator==(const EpochTable&) const = default;

  // Appends the epoch, and removes epochs that begin at or after its LSN. Beyond epoch_table_max, the oldest
  // epoch is removed, but its flags epoch_lossy and epoch_by_force stay known.
  void note(const EpochEntry& entry);
  // Removes epochs that begin after the LSN.
  void cut_behind(Lsn lsn);
  bool holds(const Epoch& epoch) const;
  // Whether an epoch that begins after the LSN was begun by force, also if the table no longer has it.
  bool by_force_behind(Lsn lsn) const;
};

// The writers of promotions by force that the table `there` no longer has, and that are not known to be part
// of the history of `here`.
ReplicaSet forcers_unknown_to(const EpochTable& here, const EpochTable& there);

// The place of `granted_after` in an entry.
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

// Errors: Errc::corrupt (too short, a counter beyond all possible counters, a writer that is not a replica,
// unknown flags, too many epochs).
Result<Epoch> get_epoch(Reader& r);
Result<EpochChange> get_change(Reader& r);
Result<EpochEntry> get_entry(Reader& r, EntryForm form = EntryForm::in_flags);
Result<EpochTable> get_table(Reader& r, EntryForm form = EntryForm::in_flags);
// For an entry that may be missing, or whose record was lost. It then has no writer.
Result<EpochEntry> get_entry_if_known(Reader& r, EntryForm form = EntryForm::in_flags);
Result<ForgottenForce> get_forgotten_force(Reader& r);
Status check_entry(const EpochEntry& entry, bool writer_known);
// Splits the field of the form in_flags into `flags` and `granted_after`.
void set_flags(EpochEntry& entry, std::uint32_t in_flags);

}  // namespace twinloft::repl
