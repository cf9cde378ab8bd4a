// One server process, from its start to its end: all of lmtpd's work except listening.
#pragma once

#include <vector>

#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/net/listener.h"
#include "twinloft/lmtpd/process/server_messages.h"

namespace twinloft::lmtpd {

// Runs in a forked process with one thread. Becomes the configured `user` permanently. `control`: a connected
// socket that brings ToServer and takes FromServer; its end counts as StopServer. `generation`: of `config`.
// Exit codes: exit_code_of() if the start failed (the log has the reason), EX_TEMPFAIL if deliveries were
// aborted, otherwise 0.
int serve(Config config, std::vector<Listener> listeners, int control, Generation generation);

}  // namespace twinloft::lmtpd
