// Runs many seeds in several processes. The result of a seed depends on its number only, so any process may
// run it.
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

// nullopt: no broken promise. An assertion of the code under test ends the process.
std::optional<Finding> run_seed(std::uint64_t seed, bool trace, Coverage& coverage);

struct ShardOptions {
  std::uint64_t first = 1;
  std::uint64_t count = 1;  // UINT64_MAX: until SIGINT or SIGTERM
  unsigned jobs = 1;        // number of processes
  // A seed takes less than a second. A seed that exceeds this limit counts as hung.
  twinloft::Duration patience = std::chrono::minutes(5);
  bool progress = false;  // a line on standard error every few seconds
};
struct ShardResult {
  Coverage coverage;
  std::uint64_t seeds = 0;         // number of seeds that have ended
  std::optional<Finding> finding;  // of the lowest failed seed; a crash or a hung seed counts as well
};
ShardResult run_shards(const ShardOptions& options);

// The last lines of this seed's trace, and of the program's output when it stops.
std::string trace_tail(std::uint64_t seed, std::size_t lines);

}  // namespace twinloft::repl::sim
