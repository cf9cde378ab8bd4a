// How much memory a volume can take: what its configuration allows, summed up. Bytes, all of them. What is
// allocated at the start is less; the rest comes with clients, with replicas that are slow, and with content.
#pragma once

#include <cstdint>

#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

struct MemoryBound {
  std::uint64_t arena = 0;     // as configured, and the index of what is in it
  std::uint64_t reads = 0;     // scratch for reads of the data area
  std::uint64_t digests = 0;   // of every block of the volume, once all differ
  std::uint64_t bitmaps = 0;   // of what each other replica may lack
  std::uint64_t log = 0;       // a note of each record in the journal
  std::uint64_t clients = 0;   // requests on their way, of all front ends that are configured
  std::uint64_t replicas = 0;  // messages on their way to them and from them
  std::uint64_t process = 0;   // the program, its threads' stacks, events
  std::uint64_t total() const {
    return arena + reads + digests + bitmaps + log + clients + replicas + process;
  }
};

// `journal_bytes`: of the ring that records are in.
MemoryBound memory_bound(const VolumeSettings& settings, std::uint64_t volume_bytes,
                         std::uint64_t journal_bytes);

// What the process has now, all of its volumes together; 0: not known.
std::uint64_t resident_bytes();

// Of the read arena that each volume has.
inline constexpr std::uint64_t read_memory_bytes = 32u << 20;

}  // namespace twinloft::repl::daemon
