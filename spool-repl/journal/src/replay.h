// Writes home what is committed, from the journal.
#pragma once

#include "twinloft/spool-repl/format/recovered.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

// The newest committed content of every block that the journal has, durable in the data area; how many blocks that were. The
// digests follow in memory: the records stay until a checkpoint has written those too.
Result<std::uint64_t> replay(ports::BlockFile& journal, ports::BlockFile& data, RecoveredLog& scan);

}  // namespace twinloft::repl::journal
