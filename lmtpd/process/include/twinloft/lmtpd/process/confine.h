// Limits the system calls of a process by a filter (seccomp(2)), so that an attacker who controls the process
// can do little.
#pragma once

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

// Installs the filter permanently, for this thread and its later threads. Call it while the process has a
// single thread, with PR_SET_NO_NEW_PRIVS. Other system calls fail with ENOSYS (so that a newer C library
// uses an older call). An attempt to run a program ends the process by SIGSYS. Errors: the kernel has no such
// filters.
Status confine();

// The filter of the user process and the connector, which connect and load libraries. They cannot run
// programs, or affect other processes.
Status confine_helper();

}  // namespace twinloft::lmtpd
