// Keeps a copy of a damaged journal before recovery cuts its log off there.
#pragma once

#include <string>

#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::daemon {

// The whole journal, blocks that cannot be read as zeros; durable when it returns. An error where there is no
// room: then nothing may be changed. The path is new with each damage.
Result<std::string> keep_journal(ports::BlockFile& journal, const journal::Damage& damage,
                                 const std::string& directory, const std::string& volume);

}  // namespace twinloft::repl::daemon
