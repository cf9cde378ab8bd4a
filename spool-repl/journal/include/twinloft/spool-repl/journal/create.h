// Creates a replica: the superblocks, an empty ring, and a zeroed data area.
#pragma once

#include <optional>

#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

struct Adoption {
  Epoch epoch;        // counter 1 and a random id
  Hash128 beginning;  // a random hash of the first mark
};

struct CreateOptions {
  Uuid volume;
  ReplicaId replica = 0;
  std::uint64_t volume_blocks = 0;
  bool data_label = false;  // the data file has one more block than the volume, for the label
  // The data area is the content of the new volume, whose history begins with this epoch. No other replica
  // has its first mark, so that no replica counts as a copy before it has been filled.
  std::optional<Adoption> adopt = {};
};

// The layout of a journal of this size. Errors: Errc::invalid with the smallest size.
Result<Superblock> plan_layout(const CreateOptions& options, std::uint64_t journal_bytes);

// Writes everything, and makes it durable. The superblock is written last, so that an interrupted creation
// leaves no volume. zero_data: whether to write zeros; without it, the data area must already read as zeros.
Result<Superblock> create_replica(const CreateOptions& options, ports::BlockFile& journal,
                                  ports::BlockFile& data, bool zero_data);

}  // namespace twinloft::repl::journal
