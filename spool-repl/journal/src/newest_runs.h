// Where the journal has the newest committed content of each block.
#pragma once

#include <vector>

#include "twinloft/spool-repl/format/recovered.h"

namespace twinloft::repl::journal {

// Blocks of one record that lie side by side both on the volume and in the journal, or a zero extent.
struct Run {
  std::uint64_t lba, blocks;
  std::uint64_t offset;   // bytes, on the journal device; of a zero extent nothing
  std::uint64_t payload;  // which blocks of the record's payload these are: the first one's index
  std::size_t record;     // index in RecoveredLog::records
  bool zeros;
};

// No block of data is in it twice. Oldest first: a zero extent is whole, and counts after older data within
// it and before newer.
std::vector<Run> newest_runs(const RecoveredLog& log);

}  // namespace twinloft::repl::journal
