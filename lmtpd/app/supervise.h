// The process that an administrator starts and signals: holds the sockets, and has another one serve.
#pragma once

#include <string>

namespace twinloft::lmtpd {

// Stays until SIGTERM or SIGINT; SIGHUP reads the configuration in `path` again. Returns the exit code.
int supervise(const std::string& path);

}  // namespace twinloft::lmtpd
