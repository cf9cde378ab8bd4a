// A mount namespace of this process. Its mounts are invisible to other processes, and disappear with the
// process. Mounts and unmounts of other processes take effect in it too.
#pragma once

#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::snapshot {

// Creates it for the calling thread, and threads that this thread starts later. Returns an empty directory
// for mount points, which needs no cleaning up.
Result<std::string> enter_private_mounts();

// Creates another namespace with copies of all mounts. Processes that were started before stay in the old
// namespace.
Status leave_for_own_mounts();

}  // namespace twinloft::repl::snapshot
