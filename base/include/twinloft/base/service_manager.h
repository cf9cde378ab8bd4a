// What passes between a service and the manager that started it: sd_notify(3) and sd_listen_fds(3), without
// systemd's library.
#pragma once

#include <string_view>
#include <vector>

#include "twinloft/base/fd.h"

namespace twinloft {

// With a manager that does not read. Only a thread that has the time waits.
enum class Patience { none, a_second };

// Where nobody wants to know (no NOTIFY_SOCKET), nothing is said. Lines such as "READY=1", "STOPPING=1",
// "STATUS=serving 2 volumes". False: it was not delivered, which is nothing that a service can act on.
bool tell_service_manager(std::string_view lines, Patience patience = Patience::a_second);

// Sockets that it has opened for this process (socket activation), in its order; none where there are none.
// Once: what says so is taken out of the environment.
std::vector<Fd> take_passed_sockets();

}  // namespace twinloft
