// What the generator can do on this machine: a load on a server that costs nearly nothing.
#pragma once

#include <string>

#include "twinloft/mailbench/load.h"

namespace twinloft::mailbench {

// options.server and options.account are replaced. tcp: over the loopback interface, not a Unix socket.
Result<LoadResult> run_calibrate(LoadOptions& options, bool tcp);
std::string calibrate_text(const LoadOptions& options, const LoadResult& result);

}  // namespace twinloft::mailbench
