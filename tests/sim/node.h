// A simulated machine: its disks, its process if it runs, and what it has asked of its disks.
#pragma once

#include <fmt/format.h>

#include "cluster.h"
#include "sim_memory.h"

namespace twinloft::repl::sim {

// Of the volume that all of them hold.
inline const Uuid volume_uuid = Uuid::parse("6f1c1c0e-8f5b-4c55-9d0a-3f0a8e0b1d10").value();

// A disk operation between its submission and its end. `apply` changes the disk, `tear` is what a power cut
// in the middle leaves.
struct Cluster::Pending {
  std::function<void()> apply;
  std::function<void()> tear;
  std::function<core::Event()> done;
  DiskKind kind = DiskKind::read;
  Lsn keeps = {};  // of an archive: the last record that it holds
};

// What a disk is about to do to the operations of one kind.
struct Cluster::DiskFault {
  DiskKind kind;
  int error;      // errno; 0: what is read is garbage
  unsigned left;  // operations
};

// From the moment when the device was read whole until its node dies or is no longer primary.
struct Cluster::Mount {
  Image beginning;
  History::Path path;
  History::State completed = 0;  // the newest request that was answered, or what was found
  std::map<std::uint64_t, std::vector<History::State>> writers;  // by block, in order
  std::size_t open = 0;                                          // requests
  bool paused = false;
  // A request that has parts of blocks is under way: when the core carries it out depends on its disk, so
  // nothing else is written meanwhile.
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
  core::Protocol protocol;  // of all its links, as far as the other end is one for C
  SimFile journal, data;
  std::vector<std::byte> archive;  // of tails that were cut off
  std::unique_ptr<SimMemory> memory, scratch;
  std::unique_ptr<core::Arena> arena, reads;
  std::unique_ptr<core::Core> core;
  std::uint64_t life = 0;
  std::int64_t started_at = 0;
  std::map<std::uint64_t, Pending> pending;
  std::uint64_t next_pending = 1;
  bool draining = false;
  std::int64_t tick_at = -1;
  std::shared_ptr<Mount> mount;
  struct Survey {
    std::uint64_t no = 0;  // 0: none
    std::size_t left = 0;
    Image image;
    std::vector<History::State> promised;  // when it began
  } survey;
  bool replaced = false;  // its disk was lost; until it is recorded as in sync again it owes nobody anything
  std::int64_t replaced_at = -1;
  void lost_disk(std::int64_t now) { replaced = true, replaced_at = now; }
  std::function<void(core::Config&)> settings;  // where its file says something else than those of the others
  bool command_open = false;
  bool gives_up = false;             // it has been told to, and may do it
  std::string refused;               // the operator's last command, and why
  bool loss_accepted = false;        // its device is, or may be, in use although its journal had lost records
  std::int64_t split_at = -1;        // when it said split brain last
  bool no_arbiter = false;           // it does not reach the arbiter
  std::set<ReplicaId> without = {};  // replicas that its configuration does not name
  std::optional<DiskFault> fault;
  // A write has failed in this life: from the request with this number on nothing but reads may succeed.
  std::optional<std::uint64_t> failed_from;
  bool damaged = false;         // its journal has lost records, and it has not started since
  bool digests_rotted = false;  // of some blocks of this disk nothing is known
  bool was_cut = false;         // since the last start: for marks
  ReplicaId filled_by = 0;      // the source of a resync that has not ended: for marks
  bool alive() const { return core != nullptr; }
  bool is_primary() const { return alive() && core->status().role == core::Role::primary; }
};

}  // namespace twinloft::repl::sim
