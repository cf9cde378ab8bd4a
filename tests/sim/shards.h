// Many seeds in several processes. A seed is a pure function of its number, so it does not matter which
// process runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cluster.h"
#include "twinloft/base/clock.h"

namespace twinloft::repl::sim {

struct Finding {
  std::uint64_t seed = 0;
  std::string what;
};

// nullopt: no promise was broken. An assertion of the code under test stops the process.
std::optional<Finding> run_seed(std::uint64_t seed, bool trace, Coverage& coverage);

struct ShardOptions {
  std::uint64_t first = 1;
  std::uint64_t count = 1;  // UINT64_MAX: until SIGINT or SIGTERM
  unsigned jobs = 1;        // processes
  // A seed takes less than a second; one that runs for so long goes round in circles.
  twinloft::Duration patience = std::chrono::minutes(5);
  bool progress = false;  // a line on standard error every few seconds
};
struct ShardResult {
  Coverage coverage;
  std::uint64_t seeds = 0;         // that have ended
  std::optional<Finding> finding;  // of the lowest seed that fails; also a crash, or a seed that does not end
};
ShardResult run_shards(const ShardOptions& options);

// The last lines of this seed's trace and of what the program says when it stops.
std::string trace_tail(std::uint64_t seed, std::size_t lines);

}  // namespace twinloft::repl::sim
