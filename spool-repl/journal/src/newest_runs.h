// The positions of the newest committed content of each block in the journal.
#pragma once

#include <vector>

#include "twinloft/spool-repl/format/recovered.h"

namespace twinloft::repl::journal {

// Blocks of a record that are adjacent on the volume and in the journal, or a zero extent.
struct Run {
  std::uint64_t lba, blocks;
  std::uint64_t offset;   // bytes, on the journal device; unused for a zero extent
  std::uint64_t payload;  // the index of the first block in the record's payload
  std::size_t record;     // index in RecoveredLog::records
  bool zeros;
};

// Each block of data occurs once. Oldest first: a zero extent is complete, and applies after older data and
// before newer data.
std::vector<Run> newest_runs(const RecoveredLog& log);

}  // namespace twinloft::repl::journal
