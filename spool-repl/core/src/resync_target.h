// The target of a resync: takes the source's content beside its records, until this replica is consistent
// again.
//
//   Idle --begin()--> Filling --all committed, home and synced--> Ending --superblock--> Idle
//     ^                  |                                          |
//     +----- drop() -----+                                          +-- drop(): it still ends
//
//   SyncCheck -> read, compared -> SyncDiffer
//   SyncData  -> committed image -> home, by the checkpointer -> SyncAck
//   SyncEnd   -> committed up to `until`, all home and synced -> superblock (Consistent)
//
// Content that was taken stays after drop(), but the missing part is not known any more. So the next
// connection starts again. Each take() returns the reason of a refusal, which closes the connection. Empty:
// no refusal.
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

  // Records and content of this source may arrive from now on. The replica must be Inconsistent, and must not
  // be ending a resync.
  void begin(const Source& source);
  void drop();  // the source is gone
  bool fills() const { return std::holds_alternative<Filling>(state_); }
  bool ends() const { return std::holds_alternative<Ending>(state_); }
  bool settled() const { return !checking_ && !ends(); }

  std::string take(SyncData& message);
  std::string take(SyncCheck& message);
  std::string take(const SyncEnd& message);
  void take(const SyncProgress& message);

  void advance();         // only while records of the source are taken
  void flush_messages();  // only while records of the source are taken
  std::optional<Instant> next_tick() const;
  void on_check_read(std::uint64_t bit, int error);
  void on_consistent_durable();

  struct Progress {  // blocks, as the source reports
    std::uint64_t done = 0, total = 0;
  };
  Progress progress() const;
  void check_invariants() const;

 private:
  // Between this replica and one source.
  struct Flow {
    Source source;
    // Data that is not durable in the data area yet: its number, and the portion of the checkpointer that
    // writes it home.
    std::deque<std::pair<std::uint64_t, std::uint64_t>> flying;
    std::uint64_t last = 0, durable = 0, acked = 0;  // numbers
    Progress progress;
  };
  struct Goal {
    Lsn until;
    std::uint64_t round;  // the checkpointer's round that syncs everything of the resync
  };
  struct Idle {};
  struct Filling {
    Flow flow;
    std::deque<SyncCheck> checks;  // to be answered in order
    std::optional<Goal> goal;
  };
  struct Ending {              // the superblock with Consistent is in flight
    std::optional<Flow> flow;  // nullopt: the source is gone
  };
  struct Checking {
    SyncCheck check;
    std::vector<Slot> slots;
    std::uint64_t home_changes = 0;
    bool stale = false;   // the source does not wait for the answer any more
    bool singly = false;  // a read of several blocks failed, so each block is read alone
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
  Instant told_at_;                   // time of the last acknowledgement of resync data
  std::uint64_t told_steps_ = 0;      // Checkpointer::steps_done() then
};

}  // namespace twinloft::repl::core
