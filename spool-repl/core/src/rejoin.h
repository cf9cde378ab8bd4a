// Makes the log of a secondary continue the log of its primary. Either a tail is cut off, or the whole log is
// given up for a resync.
//
//   Steady --cut()--> Cutting: WaitsForJournal -> Archives -> Stores -> Erases --> Steady, or Resetting (1)
//     |
//     +---reset()--> Resetting: Waits -> Archives -> Waits -> Stores --> Steady
//                                  |         |
//                               drop()     drop()
//                                  v         v
//                               Steady    Abandoned --> Steady, or Cutting (1)
//
// (1) if it was requested in the meantime.
//
// Records leave the log only after they are archived. No new record replaces them before the superblock that
// makes their frames void is durable. Frames that were cut off are erased before new records arrive.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "checkpointer.h"
#include "resync_target.h"
#include "volume.h"

namespace twinloft::repl::core {

class Rejoin {
 public:
  struct Cut {
    ReplicaId primary = 0;
    LogMark to;              // the last record that stays
    EpochEntry newest = {};  // of the primary
  };
  struct Reset {
    ReplicaId source = 0;
    SyncBegin to;           // the log becomes empty, and continues after `to.from`
    bool gives_up = false;  // for `discard`, not for a resync
  };
  struct ArchiveFailed {
    Lsn beyond;  // later records stay
    int error;
    bool of_reset;
  };

  Rejoin(Volume& volume, Checkpointer& checkpointer, const ResyncTarget& target)
      : v_(volume), checkpointer_(checkpointer), target_(target) {}

  // No cut and no reset is in progress, so records may be appended.
  bool steady() const { return std::holds_alternative<Steady>(state_); }
  const Reset* wanted_reset() const;
  bool resets() const { return wanted_reset() != nullptr; }
  bool gives_up() const { return resets() && wanted_reset()->gives_up; }
  bool stores_reset() const;  // too late for drop()
  bool archives() const;

  void cut(Cut wanted);      // not during a reset
  void reset(Reset wanted);  // not during a reset
  void drop();               // cancels a reset before its superblock write
  void advance();

  std::optional<ArchiveFailed> on_archived(int error);
  // Each returns the cut or the reset that has ended.
  std::optional<Cut> on_cut_durable();
  std::optional<Cut> on_erased(int error);
  std::optional<Reset> on_reset_durable();

  void check_invariants() const;

 private:
  // Steps of a cut. A journal write in flight could overwrite new records that replace the tail.
  struct WaitsForJournal {};
  struct Archives {
    Lsn from;
  };
  struct Stores {};
  struct Erases {};
  // A reset waits for work in flight, and until the data area is one point of the history.
  struct Waits {
    bool archived;
  };

  struct Steady {};
  struct Cutting {
    Cut cut;
    std::variant<WaitsForJournal, Archives, Stores, Erases> step;
    std::optional<Reset> then;
  };
  struct Resetting {
    Reset wanted;
    std::variant<Waits, Archives, Stores> step;
  };
  struct Abandoned {  // the source is gone, but the archive is still being written
    Lsn from;
    std::optional<Cut> then;
  };

  void try_cut();
  void finish_cut(Cutting& c);
  std::optional<Cut> erase();
  void try_reset();
  bool settle_base(const Reset& reset);
  void store(Resetting& r);
  std::optional<LogPoint> base_for(const SyncBegin& to) const;
  void forget_history(const Reset& reset);
  std::optional<ArchiveFailed> on_reset_archived(Resetting& r, int error);
  RecordNo given_up_from(const Reset& reset) const;
  Archives archive_from(RecordNo no);

  Volume& v_;
  Checkpointer& checkpointer_;
  const ResyncTarget& target_;
  std::variant<Steady, Cutting, Resetting, Abandoned> state_;
  std::vector<JournalPos> cut_off_;  // frames still to erase
  unsigned erasing_ = 0;             // erases in flight
};

}  // namespace twinloft::repl::core
