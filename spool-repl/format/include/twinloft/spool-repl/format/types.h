// Units and identifiers of the replicated volume. They are different types, so that the compiler refuses a
// journal position in place of a block address.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "twinloft/base/hash.h"
#include "twinloft/base/ids.h"

namespace twinloft::repl {

// Bytes of a block: the unit of the arena, the journal and the data area.
inline constexpr std::uint32_t block_size = 4096;

// Log sequence number: the number of an extent since the volume was created. 0: before the first record.
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

// A position in the journal: bytes written since creation. The offset in the ring is v % ring size.
struct JournalPos {
  std::uint64_t v = 0;
  auto operator<=>(const JournalPos&) const = default;
};

// A term of one writer. `counter` orders epochs for the operator, `id` identifies an epoch.
struct Epoch {
  std::uint64_t counter = 0;
  Uuid id;
  auto operator<=>(const Epoch&) const = default;
};
// No volume reaches this counter. A larger counter is refused, since the next counters would wrap around.
inline constexpr std::uint64_t epoch_counter_max = std::uint64_t{1} << 62;

using ReplicaId = std::uint32_t;   // 1..64, fixed when the replica is created
using ReplicaSet = std::uint64_t;  // bit (id - 1) for each member
inline constexpr ReplicaId replica_id_max = 64;
inline ReplicaSet set_of(ReplicaId id) {
  return ReplicaSet{1} << (id - 1);
}

// A point of a history. Equal marks mean equal histories up to this point.
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
