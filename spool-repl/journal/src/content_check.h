// The identity of a data area that has no label: the blocks whose digests the journal's device keeps.
#pragma once

#include "twinloft/spool-repl/format/recovered.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

// Errors: Errc::conflict if many blocks are known and the data area has none of them: it is another disk.
// Writes nothing. Blocks in the log's records do not count, since a crash may have kept them from the data
// area. Zeros do not count, since any disk may have them.
Status check_content(const RecoveredLog& log, ports::BlockFile& data);

}  // namespace twinloft::repl::journal
