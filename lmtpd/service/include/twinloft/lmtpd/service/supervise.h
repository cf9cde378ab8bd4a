// The supervisor: the process that an operator starts and signals. It holds the sockets, and starts server
// processes. lmtpd and spool-milter are such services.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/net/listener.h"
#include "twinloft/lmtpd/process/server_messages.h"

namespace twinloft::lmtpd {

struct Service {
  std::string name;                         // of the program, for messages
  std::string_view work;                    // what a stop waits for, and an abort ends: "deliveries"
  std::string_view lost;                    // what the end of a server process costs, for the log
  std::string_view section = "[[listen]]";  // of the addresses, for messages
  // Reads a configuration. The service listens on Config::listen.
  std::function<Result<Config>(const std::string& path)> load;
  // A server process, from its start to its end, in a forked process with one thread. `control`: a connected
  // socket that brings ToServer and takes FromServer (control.h). Exit codes: exit_code_of() if the start
  // failed (the log has the reason), EX_TEMPFAIL if work was aborted, otherwise 0.
  std::function<int(Config config, std::vector<Listener> listeners, int control, Generation generation)>
      serve;
};

// Runs until SIGTERM, SIGINT or SIGQUIT. SIGHUP reads the configuration in `path` again. Returns the exit
// code.
int supervise(const std::string& path, Service service);

// The exit code of a failed start. EX_CONFIG: an operator must correct the error. EX_UNAVAILABLE: a later
// start may succeed, for example if an address is in use or memory is short.
int exit_code_of(const Error& error);

}  // namespace twinloft::lmtpd
