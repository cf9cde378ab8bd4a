// A simulated machine: its disks, its process while it runs, and its disk operations in flight.
#pragma once

#include <fmt/format.h>

#include "cluster.h"
#include "sim_memory.h"

namespace twinloft::repl::sim {

// The id of the volume that all replicas hold.
inline const Uuid volume_uuid = Uuid::parse("6f1c1c0e-8f5b-4c55-9d0a-3f0a8e0b1d10").value();

// A disk operation from its submission to its end. `apply` changes the disk. `tear` does what a power cut in
// the middle does.
struct Cluster::Pending {
  std::function<void()> apply;
  std::function<void()> tear;
  std::function<core::Event()> done;
  DiskKind kind = DiskKind::read;
  Lsn keeps = {};  // of an archive: its last record
};

// A fault of a disk that hits the next operations of one kind.
struct Cluster::DiskFault {
  DiskKind kind;
  int error;      // errno; 0: the read returns garbage
  unsigned left;  // number of operations
};

// From the complete read of the device until the replica fails or loses its role.
struct Cluster::Mount {
  Image beginning;
  History::Path path;
  History::State completed = 0;  // the newest answered request, or the state that was found
  std::map<std::uint64_t, std::vector<History::State>> writers;  // by block, in order of submission
  std::size_t open = 0;                                          // number of requests
  bool paused = false;
  // A request with partial blocks is in flight. Its disk decides when the core carries it out, so nothing
  // else is written meanwhile.
  bool writes_parts = false;
};

inline constexpr core::Token command_promote = 1, command_demote = 2, command_discard = 3;

struct Cluster::Node {
  Node(std::size_t i, core::Protocol p, std::uint64_t journal_bytes, std::uint64_t blocks)
      : index(i),
        id(static_cast<ReplicaId>(i + 1)),
        protocol(p),
        journal(fmt::format("journal{}", id), journal_bytes),
        data(fmt::format("data{}", id), (blocks + 1) * block_size) {}
  std::size_t index;
  ReplicaId id;
  core::Protocol protocol;  // of all its links, if the other end uses C
  SimFile journal, data;
  std::vector<std::byte> archive;                         // the archives of cut tails
  std::map<std::uint64_t, std::vector<std::byte>> spill;  // chunks by number, durable
  std::uint64_t spill_from = 0;                           // smaller numbers were dropped
  bool spill_full = false;
  std::unique_ptr<SimMemory> memory, scratch;
  std::unique_ptr<core::Arena> arena, reads;
  std::unique_ptr<core::Core> core;
  std::uint64_t life = 0;
  std::int64_t started_at = 0;
  std::map<std::uint64_t, Pending> pending;
  std::uint64_t next_pending = 1;
  bool draining = false;
  bool turn_open = false;  // events have come whose output was not taken yet
  std::int64_t tick_at = -1;
  std::shared_ptr<Mount> mount;
  struct Survey {
    std::uint64_t no = 0;  // 0: no survey
    std::size_t left = 0;
    Image image;
    std::vector<History::State> promised;  // at the start of the survey
  } survey;
  bool replaced = false;  // its disk was lost; it need not hold promises until it is recorded as in sync
                          // again
  std::int64_t replaced_at = -1;
  void lost_disk(std::int64_t now) { replaced = true, replaced_at = now; }
  std::function<void(core::Config&)> settings;  // set if its settings differ from those of the other replicas
  bool command_open = false;
  bool gives_up = false;       // the operator has told it to discard its history
  std::string refused;         // the reason why the operator's last command was refused
  bool loss_accepted = false;  // its device may be in use although its journal has lost records
  std::int64_t split_at = -1;  // when it last reported split brain
  bool no_arbiter = false;     // it cannot reach the arbiter
  std::string site = {};
  ReplicaId through = 0;             // 0: none
  std::set<ReplicaId> without = {};  // replicas that its configuration does not name
  std::optional<DiskFault> fault;
  // A write has failed in this life: from this request on, only reads may succeed.
  std::optional<std::uint64_t> failed_from;
  bool damaged = false;         // its journal has lost records, and it has not started since
  bool digests_rotted = false;  // some blocks of this disk have no known digest
  bool was_cut = false;         // since the last start; for marks
  ReplicaId filled_by = 0;      // the source of an unfinished resync; for marks
  bool alive() const { return core != nullptr; }
  bool is_primary() const { return alive() && core->status().role == core::Role::primary; }
};

}  // namespace twinloft::repl::sim
