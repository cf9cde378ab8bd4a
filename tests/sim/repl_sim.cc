// repl_sim: runs simulated clusters, one a seed, and stops at the first that breaks a promise.
//
//   repl_sim --seeds N [--first S]      N seeds from S (default 1)
//   repl_sim --seed S [--trace]         one seed, again exactly as before
//
// Exit: 0 no violation, 1 a violation (the seed is printed), 64 usage.
#include <fmt/format.h>
#include <malloc.h>

#include <cstdlib>
#include <string>

#include "cluster.h"

namespace {

bool run_seed(std::uint64_t seed, bool trace, twinloft::repl::sim::Coverage& coverage) {
  try {
    twinloft::repl::sim::Cluster(seed, trace, coverage).run();
    return true;
  } catch (const twinloft::repl::sim::Violation& v) {
    fmt::print("seed {}: {}\nagain: repl_sim --seed {} --trace\n", seed, v.what, seed);
    return false;
  }
}

int usage() {
  fmt::print(stderr, "usage: repl_sim --seeds N [--first S] | --seed S [--trace]\n");
  return 64;
}

}  // namespace

int main(int argc, char** argv) {
  // Recovery takes and frees megabytes hundreds of times a seed: they stay with the process.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  std::uint64_t first = 1, count = 0;
  bool trace = false;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    if (arg == "--trace") {
      trace = true;
      continue;
    }
    if (i + 1 >= argc) return usage();
    std::uint64_t value = std::strtoull(argv[++i], nullptr, 10);
    if (arg == "--seeds") count = value;
    else if (arg == "--first") first = value;
    else if (arg == "--seed") first = value, count = 1;
    else return usage();
  }
  if (count == 0) return usage();
  twinloft::repl::sim::Coverage coverage;
  for (std::uint64_t seed = first; seed < first + count; ++seed)
    if (!run_seed(seed, trace, coverage)) return 1;
  for (const auto& [mark, hits] : coverage.marks) fmt::print("{:>9}  {}\n", hits, mark);
  fmt::print("{} seeds, no violation\n", count);
  return 0;
}
