// The messages of lmtpd's intake log that are not in their Maildirs: they were acknowledged, and `lmtpd
// replay` has not run on this file system (docs/formats/intake-log.md).
#pragma once

#include <functional>
#include <string>

#include "spool_tree.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/salvage/extract.h"

namespace twinloft::repl::salvage {

struct LoggedMessage {
  std::string maildir, folder, name;  // a file in new/
  std::string_view content;
};

// Calls `take` for each message that a replay would place, and whose group was written after the split. root:
// of the tree. Problems: a log that cannot be used, with the reason. Errors: those of `take`.
Status each_logged_message(int root, const RangeWrittenAfterParting& written,
                           const std::function<Status(const LoggedMessage&)>& take, Problems& problems);

}  // namespace twinloft::repl::salvage
