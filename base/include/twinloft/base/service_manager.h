// The protocols of sd_notify(3) and sd_listen_fds(3) with the service manager, without systemd's library.
#pragma once

#include <string_view>
#include <vector>

#include "twinloft/base/fd.h"

namespace twinloft {

// How long to wait for a service manager that does not read.
enum class Patience { none, a_second };

// Sends lines such as "READY=1", "STOPPING=1" or "STATUS=serving 2 volumes" to the service manager. Without
// NOTIFY_SOCKET in the environment, nothing is sent. False: the lines were not delivered. A service cannot do
// anything about that.
bool tell_service_manager(std::string_view lines, Patience patience = Patience::a_second);

// The sockets that the service manager has opened for this process (socket activation), in its order. Only
// the first call returns them: it removes LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES from the environment.
std::vector<Fd> take_passed_sockets();

}  // namespace twinloft
