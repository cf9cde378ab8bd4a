// The largest amount of memory of a volume, from its configuration, in bytes. Less is allocated at the
// start. The rest comes with clients, slow replicas and content.
#pragma once

#include <cstdint>

#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

struct MemoryBound {
  std::uint64_t arena = 0;     // as configured, with the index of its blocks
  std::uint64_t reads = 0;     // scratch for reads of the data area
  std::uint64_t digests = 0;   // of every block of the volume, if all differ
  std::uint64_t bitmaps = 0;   // of the blocks that other replicas may lack
  std::uint64_t log = 0;       // a note of each record in the journal
  std::uint64_t clients = 0;   // requests in flight, of all configured front ends
  std::uint64_t replicas = 0;  // messages to replicas and from them
  std::uint64_t process = 0;   // the program, its threads' stacks, events
  std::uint64_t total() const {
    return arena + reads + digests + bitmaps + log + clients + replicas + process;
  }
};

// journal_bytes: the size of the ring of records.
MemoryBound memory_bound(const VolumeSettings& settings, std::uint64_t volume_bytes,
                         std::uint64_t journal_bytes);

// The present memory of the process, with all volumes. 0: unknown.
std::uint64_t resident_bytes();

// The size of the read arena of each volume.
inline constexpr std::uint64_t read_memory_bytes = 32u << 20;

}  // namespace twinloft::repl::daemon
