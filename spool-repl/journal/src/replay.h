// Brings what is committed from the journal to where it is read: into memory, as far as there is room, and
// home.
#pragma once

#include "twinloft/spool-repl/format/recovered.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

// The newest committed content of every block that the journal has: of the newest records in `room`, of the
// others durable in the data area. Sets scan.home and scan.loaded; how many blocks were written home. The
// digests of those follow in memory: the records stay until a checkpoint has written them too.
Result<std::uint64_t> replay(ports::BlockFile& journal, ports::BlockFile& data, RecoveredLog& scan,
                             MutableByteSpan room);

}  // namespace twinloft::repl::journal
