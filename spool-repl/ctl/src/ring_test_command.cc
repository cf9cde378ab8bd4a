// spool-repl fuse-ring-test
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "commands.h"
#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/export/ring_test.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::ctl {
namespace {

// At once: the client's process is waiting for the end of its mount, which the end of this process brings.
[[noreturn]] void end(const Status& outcome) {
  fmt::print("{}\n", outcome ? "good" : outcome.error().message);
  std::fflush(stdout);
  ::_exit(outcome ? exit_ok : exit_failed);
}

}  // namespace

void ring_test_command() {
  OsClock clock;
  auto loop = io::UringLoop::create(clock);
  if (!loop) end(std::unexpected(loop.error()));
  auto test = fuse::RingTest::start(**loop, [](Status outcome) { end(outcome); });
  if (!test) end(std::unexpected(test.error()));
  end((*loop)->run());
}

}  // namespace twinloft::repl::ctl
