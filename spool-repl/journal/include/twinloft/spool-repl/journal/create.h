// Creating a replica: superblocks, an empty ring, a zeroed data area.
#pragma once

#include <optional>

#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

struct Adoption {
  Epoch epoch;        // counter 1, a random id
  Hash128 beginning;  // random
};

struct CreateOptions {
  Uuid volume;
  ReplicaId replica = 0;
  std::uint64_t volume_blocks = 0;
  bool data_label = false;  // the data file has one block more than the volume, for the label
  // Set: what the data area holds is the volume's content. Its history begins with this epoch, and with a
  // mark that no other replica has, so that none is mistaken for a copy of it before it is one.
  std::optional<Adoption> adopt = {};
};

// Where a journal of this size puts things; Errc::invalid where it is too small, saying how large it must be.
Result<Superblock> plan_layout(const CreateOptions& options, std::uint64_t journal_bytes);

// Writes everything and syncs. The superblock comes last: an interrupted creation leaves no volume. With
// `zero_data` false the caller knows that the data area reads as zeros.
Result<Superblock> create_replica(const CreateOptions& options, ports::BlockFile& journal,
                                  ports::BlockFile& data, bool zero_data);

}  // namespace twinloft::repl::journal
