// One server process: everything that lmtpd does but listening, from its start to its end.
#pragma once

#include <vector>

#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/net/listener.h"
#include "twinloft/lmtpd/process/supervisor.h"

namespace twinloft::lmtpd {

// What it says to its supervisor, each but the last once.
inline constexpr char server_is_ready = 'r';
inline constexpr char server_is_crippled = 'c';  // it cannot run agents any more
inline constexpr char server_is_leaving = 'l';   // no connection is left, and no sign of life comes any more
inline constexpr char server_lives = 'b';        // now and then, from server_is_ready on

// For a process that was forked for it, and has one thread. Becomes `user` of the configuration for good.
// `control`: a connected socket that ServerCommand comes from, a byte each; its end is ServerCommand::stop.
// Returns the exit code: exit_code_of() where it did not come to serve, with the reason in the log;
// EX_TEMPFAIL where deliveries were aborted; 0.
int serve(Config config, std::vector<Listener> listeners, int control);

// Of a start that failed. EX_CONFIG: it fails again until somebody mends it. EX_UNAVAILABLE: a later start
// may succeed, as where an address is in use, or memory is short.
int exit_code_of(const Error& error);

}  // namespace twinloft::lmtpd
