// The signals that a daemon handles, so that each of them leaves a line in the log (signal(7)).
#pragma once

#include <string>
#include <vector>

namespace twinloft {

// All signals whose default action ends or stops the process, without SIGPIPE, SIGCHLD, SIGQUIT and the
// signals of a defect. A terminal's signals are included, since a daemon is not a job of its terminal.
std::vector<int> daemon_signals();

// "SIGTERM", "SIGRTMIN+3".
std::string signal_name(int number);

}  // namespace twinloft
