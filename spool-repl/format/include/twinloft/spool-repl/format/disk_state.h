// The state of a replica's content in the superblock: one of four states, each with its own fields.
// docs/formats/superblock.md describes the bytes, docs/decisions/disk-state.md the reasons for these four.
//
// A promotion in spite of a loss is not a state of the disk: the superblock still has the loss until the
// record of the promotion is durable (core/disk_condition.h).
#pragma once

#include <optional>
#include <variant>

#include "twinloft/spool-repl/format/epoch.h"

namespace twinloft::repl {

namespace disk_state {

// Data area and journal are a history up to the journal's end.
struct Consistent {
  bool operator==(const Consistent&) const = default;
};

// As Consistent, but writes are missing that this replica, or an earlier one with its id, acknowledged. They
// are back once the log reaches `until`. A record of an epoch later than `reported_in` also suffices: its
// primary had all of it.
struct Refilling {
  Lsn until;          // at least 1
  Epoch reported_in;  // the epoch of the primary that reported the loss
  bool operator==(const Refilling&) const = default;
};

// The journal was damaged and has lost records. Some of them may be in the data area, in part. All of them
// must come back as records.
struct Damaged {
  Lsn until;                         // everything up to here was committed once
  std::optional<Epoch> of;           // the epoch of `until`; nullopt: unknown
  std::optional<EpochEntry> newest;  // the newest epoch found before or after the damage
  LogPoint base;                     // data area and journal have the history up to here
  bool operator==(const Damaged&) const = default;
};

// A resync from a primary of `source` is unfinished.
struct Syncing {
  Epoch source;
  std::optional<LogPoint> base;  // the history that the content was when this began; nullopt: not known
  bool operator==(const Syncing&) const = default;
};

}  // namespace disk_state

using DiskState = std::variant<disk_state::Consistent, disk_state::Refilling, disk_state::Damaged,
                               disk_state::Syncing>;

// Whether the data area is not a state of the volume: Damaged or Syncing.
bool is_inconsistent(const DiskState& state);

inline constexpr std::uint32_t disk_state_bytes = 128;  // in the superblock, for each state
void put_disk_state(Writer& w, const DiskState& state);
// Errors: Errc::corrupt (too short, an unknown tag, fields that the state cannot have).
Result<DiskState> get_disk_state(Reader& r);

// The state in versions 4 and 5: a combination of these fields.
struct DiskFieldsV5 {
  Epoch source;
  Lsn until;
  LogPoint base;
  EpochEntry newest;
};
// volume: its UUID stood for an unknown epoch. Errors: Errc::corrupt (a combination that no release wrote).
Result<DiskState> state_of(const DiskFieldsV5& fields, const Uuid& volume);

}  // namespace twinloft::repl
