// The supervisor: the process that an operator starts and signals. It holds the sockets, and starts server
// processes.
#pragma once

#include <string>

namespace twinloft::lmtpd {

// Runs until SIGTERM, SIGINT or SIGQUIT. SIGHUP reads the configuration in `path` again. Returns the exit
// code.
int supervise(const std::string& path);

}  // namespace twinloft::lmtpd
