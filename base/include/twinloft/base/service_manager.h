// What a service tells the manager that started it (systemd's Type=notify): the datagrams of sd_notify(3), without its
// library. Where nobody wants to know (no NOTIFY_SOCKET), nothing is said.
#pragma once

#include <string_view>

namespace twinloft {

// Lines such as "READY=1", "STOPPING=1", "STATUS=serving 2 volumes". False: it was not delivered, which is nothing that a
// service can act on.
bool tell_service_manager(std::string_view lines);

}  // namespace twinloft
