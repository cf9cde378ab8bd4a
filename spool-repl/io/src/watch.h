// A watched descriptor of UringLoop. Level-triggering consists of one-shot polls, which are armed again after
// the handler. The kernel checks the state when it receives a poll, so no event is lost in between.
#pragma once

#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::io {

struct UringLoop::Watch {
  int fd = -1;
  unsigned interest = 0;
  unsigned armed = 0;       // the interest of the kernel's poll; 0: no poll
  bool cancelling = false;  // the poll is being removed
  bool gone = false;        // unwatched
  FdHandler handler;
};

// The low bits of a completion's user data are the kind of its operation.
inline constexpr std::uint64_t tag_disk = 0;
inline constexpr std::uint64_t tag_poll = 1;
inline constexpr std::uint64_t tag_ignored = 2;
inline constexpr std::uint64_t tag_mask = 7;
static_assert(alignof(DiskOp) > tag_mask, "the low bits of its address are free for the tag");

}  // namespace twinloft::repl::io
