// A watched descriptor of UringLoop. Level-triggering is made of one-shot polls that are armed again after
// the handler ran: the kernel looks at the state when it takes a poll, so nothing is missed in between.
#pragma once

#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::io {

struct UringLoop::Watch {
  int fd = -1;
  unsigned interest = 0;
  unsigned armed = 0;       // interest the kernel's poll was made with; 0: none under way
  bool cancelling = false;  // the poll under way is being removed
  bool gone = false;        // unwatched
  FdHandler handler;
};

// The low bits of a completion's user data say what it belongs to.
inline constexpr std::uint64_t tag_disk = 0;
inline constexpr std::uint64_t tag_poll = 1;
inline constexpr std::uint64_t tag_ignored = 2;
inline constexpr std::uint64_t tag_mask = 7;
static_assert(alignof(DiskOp) > tag_mask, "the low bits of its address are free for the tag");

}  // namespace twinloft::repl::io
