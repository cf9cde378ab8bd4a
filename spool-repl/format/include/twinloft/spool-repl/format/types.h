// Units and identifiers of the replicated volume. Each is a type of its own so that a place in the journal is
// never mistaken for a place on the disk.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "twinloft/base/hash.h"
#include "twinloft/base/ids.h"

namespace twinloft::repl {

inline constexpr std::uint32_t block_size = 4096;  // bytes; the unit of the arena, the journal and the data
                                                   // area

// Log sequence number: one per extent ever logged. 0 is the state before the first record ("genesis").
struct Lsn {
  std::uint64_t v = 0;
  auto operator<=>(const Lsn&) const = default;
};
inline Lsn operator+(Lsn a, std::uint64_t n) {
  return {a.v + n};
}

// Block address within the volume, in blocks of block_size.
struct Lba {
  std::uint64_t v = 0;
  auto operator<=>(const Lba&) const = default;
};
inline Lba operator+(Lba a, std::uint64_t n) {
  return {a.v + n};
}

// Place in the journal ring as if the ring had no end: bytes since creation. Physical = v % ring size.
struct JournalPos {
  std::uint64_t v = 0;
  auto operator<=>(const JournalPos&) const = default;
};

// A term of one writer. `counter` orders epochs for people, `id` tells them apart.
struct Epoch {
  std::uint64_t counter = 0;
  Uuid id;
  auto operator<=>(const Epoch&) const = default;
};
// Nobody counts so far. Who names a counter beyond it is wrong, and would have the next one wrap around.
inline constexpr std::uint64_t epoch_counter_max = std::uint64_t{1} << 62;

using ReplicaId = std::uint32_t;   // 1..64, fixed when the replica is created
using ReplicaSet = std::uint64_t;  // bit (id - 1) for each member
inline constexpr ReplicaId replica_id_max = 64;
inline ReplicaSet set_of(ReplicaId id) {
  return ReplicaSet{1} << (id - 1);
}

// A point of one history: equal marks mean that everything up to here is equal.
struct LogMark {
  Lsn lsn;
  Hash128 hash;  // body hash of the record that ends at lsn; the volume's genesis hash at lsn 0
  auto operator<=>(const LogMark&) const = default;
};

// The record of `epoch` that ends at `lsn`.
struct LogPoint {
  Epoch epoch;
  Lsn lsn;
  bool operator==(const LogPoint&) const = default;
};

}  // namespace twinloft::repl
