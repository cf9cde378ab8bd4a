// Brings committed content from the journal into memory, as far as there is room, and home.
#pragma once

#include "twinloft/spool-repl/format/recovered.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

// Loads the newest records into `room`, and writes the newest content of the older records home, durably.
// Sets scan.home and scan.loaded. Returns the number of blocks that were written home. Their digests change
// in memory; the records stay until a checkpoint has written the digests.
Result<std::uint64_t> replay(ports::BlockFile& journal, ports::BlockFile& data, RecoveredLog& scan,
                             MutableByteSpan room);

}  // namespace twinloft::repl::journal
