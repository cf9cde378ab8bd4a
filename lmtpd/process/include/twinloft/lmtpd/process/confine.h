// Limits the system calls of a process by a filter (seccomp(2)), so that an attacker who controls the process
// can do little.
#pragma once

#include <string>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/process/privileges.h"

namespace twinloft::lmtpd {

// Installs the filter permanently, for this thread and its later threads. Call it while the process has a
// single thread, with PR_SET_NO_NEW_PRIVS. Other system calls fail with ENOSYS (so that a newer C library
// uses an older call). An attempt to run a program ends the process by SIGSYS. Errors: the kernel has no such
// filters.
Status confine();

// The filter of the user process and the connector, which connect and load libraries. They cannot run
// programs, or affect other processes.
Status confine_helper();

// Becomes `identity` permanently (privileges.h), and is confined as above. Without filters in the kernel, a
// warning is logged. user: the setting. what: the helper's work, for this warning.
Status become_server(const Identity& identity, const std::string& user);
Status become_helper(const Identity& identity, const std::string& user, const char* what);

}  // namespace twinloft::lmtpd
