// The target of a resync: takes the source's content beside its records, and says when it is the volume
// again.
//
//   Idle --begin()--> Filling --all committed, home and synced--> Ending --superblock--> Idle
//     ^                  |                                          |
//     +----- drop() -----+                                          +-- drop(): it ends all the same
//
//   SyncCheck -> read, compared -> SyncDiffer
//   SyncData  -> committed image -> home, by the checkpointer -> SyncAck
//   SyncEnd   -> committed up to `until`, all home and synced -> superblock (Consistent)
//
// What was taken stays after drop(). What is missing is not known any more: the next connection begins anew.
// Messages are refused by a reason, for the connection to be closed; an empty one means that they were taken.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "checkpointer.h"
#include "volume.h"

namespace twinloft::repl::core {

class ResyncTarget {
 public:
  struct Source {
    ReplicaId replica = 0;
    Epoch epoch;
  };

  ResyncTarget(Volume& volume, Checkpointer& checkpointer) : v_(volume), checkpointer_(checkpointer) {}

  // Records and content of this source may come from now on. The replica is Inconsistent, and not ending a
  // resync.
  void begin(const Source& source);
  void drop();  // the source is gone
  bool fills() const { return std::holds_alternative<Filling>(state_); }
  bool ends() const { return std::holds_alternative<Ending>(state_); }
  bool settled() const { return !checking_ && !ends(); }

  std::string take(SyncData& message);
  std::string take(SyncCheck& message);
  std::string take(const SyncEnd& message);
  void take(const SyncProgress& message);

  void advance();         // while the source's records are taken
  void flush_messages();  // the same
  std::optional<Instant> next_tick() const;
  void on_check_read(std::uint64_t bit, int error);
  void on_consistent_durable();

  struct Progress {  // blocks, says the source
    std::uint64_t done = 0, total = 0;
  };
  Progress progress() const;
  void check_invariants() const;

 private:
  // Between this replica and one source.
  struct Flow {
    Source source;
    // Data that is not known to be durable in the data area: its number, and the checkpoint's portion that
    // brings it there.
    std::deque<std::pair<std::uint64_t, std::uint64_t>> flying;
    std::uint64_t last = 0, durable = 0, acked = 0;  // numbers
    Progress progress;
  };
  struct Goal {
    Lsn until;
    std::uint64_t round;  // of the checkpointer, that syncs everything of the resync
  };
  struct Idle {};
  struct Filling {
    Flow flow;
    std::deque<SyncCheck> checks;  // to be answered in order
    std::optional<Goal> goal;
  };
  struct Ending {              // the superblock that says Consistent is under way
    std::optional<Flow> flow;  // nullopt: the source is gone
  };
  struct Checking {
    SyncCheck check;
    std::vector<Slot> slots;
    std::uint64_t home_changes = 0;
    bool stale = false;   // nobody waits for the answer any more
    bool singly = false;  // the read of all failed: each block is read by itself
    unsigned outstanding = 0;
    std::uint64_t unreadable = 0;  // of the mask
  };

  Filling* filling_from(const Epoch& epoch);
  const Flow* flow() const;
  void start_check(Filling& f);
  void read_check();
  std::uint64_t compare();
  std::uint64_t next_serial();
  void put(Lba lba, const std::byte* block, std::uint64_t serial);
  void try_end(Filling& f);

  Volume& v_;
  Checkpointer& checkpointer_;
  std::variant<Idle, Filling, Ending> state_;
  std::optional<Checking> checking_;  // its reads outlive the source
  std::uint64_t serial_ = 0;          // of entries in the committed image; never used twice in a process
  Instant told_at_;                   // an acknowledgement of resync data was sent last
  std::uint64_t told_steps_ = 0;      // Checkpointer::steps_done() then
};

}  // namespace twinloft::repl::core
