// One server process of spool-milter, from its start to its end.
#pragma once

#include <vector>

#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/net/listener.h"
#include "twinloft/lmtpd/process/server_messages.h"

namespace twinloft::spool_milter {

// As Service::serve (lmtpd/service/supervise.h). The configuration has [spool_milter], and its address is the
// one listener.
int serve(lmtpd::Config config, std::vector<lmtpd::Listener> listeners, int control,
          lmtpd::Generation generation);

}  // namespace twinloft::spool_milter
