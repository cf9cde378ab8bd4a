// A test of FUSE over io_uring on this machine. A failure, also one that hangs, must not harm the program
// that asks: so the test runs in processes of its own, on a mount without a path that ends with them.
#pragma once

#include <functional>
#include <memory>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::fuse {

// Runs `spool-repl fuse-ring-test`, and waits for it: about 6 s at most. Blocks, but never on FUSE. Errors:
// Errc::unavailable with the reason.
Status test_ring_in_process();

// The test itself. The calling process must have one thread, serve nothing else, and end after it by
// _exit(2). A second process writes and reads the mounted file.
class RingTest {
 public:
  static Result<std::unique_ptr<RingTest>> start(ports::Loop& loop, std::function<void(Status)> done);
  ~RingTest();

 private:
  struct State;
  explicit RingTest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace twinloft::repl::fuse
