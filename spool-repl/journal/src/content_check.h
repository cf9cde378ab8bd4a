// The identity of a data area that has no label: the blocks whose digests the journal's device keeps.
#pragma once

#include "twinloft/spool-repl/format/recovered.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

// Errc::conflict where many blocks are known and the data area holds none of them: it is another disk. Reads
// only. Blocks in the log's records are left out, since a crash may have kept them from the data area; so are
// zeros, which any disk may hold.
Status check_content(const RecoveredLog& log, ports::BlockFile& data);

}  // namespace twinloft::repl::journal
