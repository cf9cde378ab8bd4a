// Creating a replica: superblocks, an empty ring, a zeroed data area.
#pragma once

#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

struct CreateOptions {
  Uuid volume;
  ReplicaId replica = 0;
  std::uint64_t volume_blocks = 0;
  bool data_label = false;  // the data file has one block more than the volume, for the label
};

// Where a journal of this size puts things; Errc::invalid where it is too small, saying how large it must be.
Result<Superblock> plan_layout(const CreateOptions& options, std::uint64_t journal_bytes);

// Writes everything and syncs. The superblock comes last: an interrupted creation leaves no volume. With
// `zero_data` false the caller knows that the data area reads as zeros.
Result<Superblock> create_replica(const CreateOptions& options, ports::BlockFile& journal, ports::BlockFile& data,
                                  bool zero_data);

}  // namespace twinloft::repl::journal
