// Keeps a copy of a damaged journal before recovery cuts its log off there.
#pragma once

#include <string>

#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::daemon {

// Copies the whole journal, with zeros for unreadable blocks. The copy is durable at the return. Each copy
// has a new path. Errors: no space; the journal must then not be changed.
Result<std::string> keep_journal(ports::BlockFile& journal, const journal::Damage& damage,
                                 const std::string& directory, const std::string& volume);

}  // namespace twinloft::repl::daemon
