// A mount namespace of this process's own: what is mounted in it is seen by nobody else and goes with the
// process, however it ends. What others mount and unmount meanwhile is mounted and unmounted in it too.
#pragma once

#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::snapshot {

// For the calling thread and those that it starts from now on. An empty directory for mount points, which
// needs no clearing up, is what comes back.
Result<std::string> enter_private_mounts();

// Again, with a copy of what is mounted: a process that was started in between stays behind.
Status leave_for_own_mounts();

}  // namespace twinloft::repl::snapshot
