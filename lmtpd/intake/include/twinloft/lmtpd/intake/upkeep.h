// Makes, removes and sets aside the intake log of a spool.
#pragma once

#include <string>

#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/intake/log_directory.h"

namespace twinloft::lmtpd {

// Makes an empty log, durably. root: of the spool. Errors: as of LogDirectory::create().
Status create_log(int root, std::uint64_t bytes, Random& random);

// Removes a log from which nothing has to be replayed. What is in stuck/ stays: then the directory stays too.
// An interrupted removal leaves a log that is as if it had never been finished.
Status remove_log(LogDirectory log, int root);

// Renames the directory to the first free `.twinloft-intake.set-aside-N`, durably, and returns the new name.
// The log need not be readable. Errors: Errc::not_found (there is none), Errc::conflict (a process uses it).
Result<std::string> set_log_aside(int root);

}  // namespace twinloft::lmtpd
