// One server process: everything that lmtpd does but listening, from its start to its end.
#pragma once

#include <vector>

#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/net/listener.h"
#include "twinloft/lmtpd/process/server_messages.h"

namespace twinloft::lmtpd {

// For a process that was forked for it, and has one thread. Becomes `user` of the configuration for good.
// `control`: a connected socket that ToServer comes from, and FromServer goes to; its end is StopServer.
// `generation`: of that configuration.
// Returns the exit code: exit_code_of() where it did not come to serve, with the reason in the log;
// EX_TEMPFAIL where deliveries were aborted; 0.
int serve(Config config, std::vector<Listener> listeners, int control, Generation generation);

// Of a start that failed. EX_CONFIG: it fails again until somebody mends it. EX_UNAVAILABLE: a later start
// may succeed, as where an address is in use, or memory is short.
int exit_code_of(const Error& error);

}  // namespace twinloft::lmtpd
