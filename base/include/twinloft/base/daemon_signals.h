// The signals that a daemon takes, so that none ends or stops it without a word (signal(7)).
#pragma once

#include <string>
#include <vector>

namespace twinloft {

// All whose default is to end or to stop the process, but SIGPIPE, SIGCHLD, SIGQUIT, and what a defect
// raises. A terminal's are among them, since a daemon is no longer its job.
std::vector<int> daemon_signals();

// "SIGTERM", "SIGRTMIN+3".
std::string signal_name(int number);

}  // namespace twinloft
