// repl_sim: runs simulated clusters, one for each seed, and stops at the first broken promise.
//
//   repl_sim --seeds N [--first S] [--jobs J] [--marks]   N seeds from S (default 1) in J processes
//   repl_sim --seed S [--trace]                           one seed, exactly as before
//   repl_sim --seeds N [--first S] --trace                traces of several seeds, in one process
//   repl_sim --soak [--first S] [--jobs J]                until SIGINT or SIGTERM; default: a random first
//   seed
//
// --patience SECONDS: a seed that runs longer than this counts as hung (300).
// --marks: every situation listed in marks.cc must occur, and no other.
// Exit: 0 no violation, 1 a violation (the seed is printed), 2 a missing or unlisted mark, 64 usage.
#include <fmt/format.h>
#include <malloc.h>

#include <cstdlib>
#include <string>

#include "marks.h"
#include "shards.h"
#include "twinloft/base/random.h"

namespace {

using namespace twinloft::repl::sim;

constexpr std::size_t tail_lines = 60;

struct Arguments {
  ShardOptions shards;
  bool one = false, soak = false, trace = false, marks = false, first_given = false;
};

int usage() {
  fmt::print(stderr,
             "usage: repl_sim --seeds N [--first S] [--jobs J] [--marks] | --seed S [--trace] | "
             "--soak [--first S] [--jobs J]\n");
  return 64;
}

bool parse(int argc, char** argv, Arguments& args) {
  args.shards.count = 0;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    bool* flag = arg == "--trace"   ? &args.trace
                 : arg == "--marks" ? &args.marks
                 : arg == "--soak"  ? &args.soak
                                    : nullptr;
    if (flag) {
      *flag = true;
      continue;
    }
    if (i + 1 >= argc) return false;
    char* end = nullptr;
    std::uint64_t value = std::strtoull(argv[++i], &end, 10);
    if (end == argv[i] || *end != '\0') return false;
    if (arg == "--seeds")
      args.shards.count = value;
    else if (arg == "--first")
      args.shards.first = value, args.first_given = true;
    else if (arg == "--patience")
      args.shards.patience = std::chrono::seconds(value);
    else if (arg == "--jobs")
      args.shards.jobs = static_cast<unsigned>(value);
    else if (arg == "--seed")
      args.shards.first = value, args.shards.count = 1, args.one = true;
    else
      return false;
  }
  if (args.shards.jobs == 0 || (args.soak && args.trace)) return false;
  return args.soak ? args.shards.count == 0 : args.shards.count > 0;
}

// Runs in this process.
int run_here(const Arguments& args) {
  if (args.trace)
    std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);  // so that the lines before an assertion are written
  Coverage coverage;
  for (std::uint64_t i = 0; i < args.shards.count; ++i) {
    if (args.trace) fmt::print("seed {}\n", args.shards.first + i);
    auto found = run_seed(args.shards.first + i, args.trace, coverage);
    if (!found) continue;
    fmt::print("seed {}: {}\nagain: repl_sim --seed {} --trace\n", found->seed, found->what, found->seed);
    return 1;
  }
  if (args.trace) return 0;
  for (const auto& [mark, hits] : coverage.marks) fmt::print("{:>9}  {}\n", hits, mark);
  return 0;
}

int run_many(Arguments args) {
  if (args.soak) {
    args.shards.count = UINT64_MAX;
    args.shards.progress = true;
    if (!args.first_given)
      args.shards.first = twinloft::OsRandom().next() >> 16;  // short enough to write down
    fmt::print("from seed {}\n", args.shards.first);
  }
  ShardResult result = run_shards(args.shards);
  if (result.finding) {
    const Finding& f = *result.finding;
    fmt::print("{}seed {}: {}\nagain: repl_sim --seed {} --trace\n", trace_tail(f.seed, tail_lines), f.seed,
               f.what, f.seed);
    return 1;
  }
  for (const auto& [mark, hits] : result.coverage.marks) fmt::print("{:>9}  {}\n", hits, mark);
  fmt::print("{} seeds from {}, no violation\n", result.seeds, args.shards.first);
  if (!args.marks) return 0;
  std::string wrong = unexpected_marks(result.coverage);
  fmt::print("{}", wrong);
  return wrong.empty() ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  // Recovery allocates and frees megabytes hundreds of times for a seed. The process keeps this memory.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  Arguments args;
  if (!parse(argc, argv, args)) return usage();
  return args.one || args.trace ? run_here(args) : run_many(args);
}
