// What the serving process may ask of the kernel: a list of system calls (seccomp(2)), so that an attacker
// who takes it over can do little.
#pragma once

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

// For this thread and all that it starts; for good. To be called while there is one thread, with
// PR_SET_NO_NEW_PRIVS. What is not on the list fails with ENOSYS (so that a newer C library takes the older
// call); an attempt to run a program ends the process by SIGSYS. Errors: the kernel has no such filters.
Status confine();

// For the process that asks the user database, which makes connections and loads libraries: it runs no
// programs, and does nothing to other processes.
Status confine_helper();

}  // namespace twinloft::lmtpd
