// How the log of a secondary comes to continue the log of its primary: a tail is cut off, or the whole log is
// given up for a resync. One at a time.
//
//   Steady --cut()--> Cutting: WaitsForJournal -> Archives -> Stores -> Erases --> Steady, or Resetting,
//   where
//     |                                                                            that was asked for
//     meanwhile
//     +---reset()--> Resetting: Waits -> Archives -> Waits -> Stores --> Steady
//                                  |         |
//                               drop()     drop()
//                                  v         v
//                               Steady    Abandoned --> Steady, or Cutting, where that was asked for
//                               meanwhile
//
// Nothing leaves the log before it is archived, and nothing comes in its place before the superblock that
// makes its frames void is durable. What was cut off is erased too, before records come.
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
    SyncBegin to;           // the log is to be empty behind `to.from`
    bool gives_up = false;  // by `discard`, and not for a resync
  };
  struct ArchiveFailed {
    Lsn beyond;  // what lies behind it stays
    int error;
    bool of_reset;
  };

  Rejoin(Volume& volume, Checkpointer& checkpointer, const ResyncTarget& target)
      : v_(volume), checkpointer_(checkpointer), target_(target) {}

  // The log here is what it says: records may be taken.
  bool steady() const { return std::holds_alternative<Steady>(state_); }
  const Reset* wanted_reset() const;
  bool resets() const { return wanted_reset() != nullptr; }
  bool gives_up() const { return resets() && wanted_reset()->gives_up; }
  bool stores_reset() const;  // it cannot be dropped any more
  bool archives() const;

  void cut(Cut wanted);      // not while a reset is wanted
  void reset(Reset wanted);  // the same
  void drop();               // of a reset what has not reached the superblock
  void advance();

  std::optional<ArchiveFailed> on_archived(int error);
  // What has been cut, once that has ended.
  std::optional<Cut> on_cut_durable();
  std::optional<Cut> on_erased(int error);
  std::optional<Reset> on_reset_durable();

  void check_invariants() const;

 private:
  // Steps of a cut. A journal write under way could land on top of what comes in place of the tail.
  struct WaitsForJournal {};
  struct Archives {
    Lsn from;
  };
  struct Stores {};
  struct Erases {};
  // Of a reset: for what is under way, and for the data area to have one point of the history.
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
  struct Abandoned {  // the source is gone, and its archive is still being written
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
  std::vector<JournalPos> cut_off_;  // still to be erased
  unsigned erasing_ = 0;             // under way
};

}  // namespace twinloft::repl::core
