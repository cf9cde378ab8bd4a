// Work that may wait for a file that this same process serves.
#pragma once

#include <functional>

namespace twinloft::repl::exports {

// Runs `work` on a thread with its own descriptors (0 to 2 alone), and returns after it.
//
// The kernel ends a FUSE connection when /dev/fuse is closed, and a killed process closes a descriptor when
// the last thread that shares it has ended. A thread that waits for its own process's file is not killed
// before the file answers. With shared descriptors, neither would ever happen.
//
// `work` must use no descriptor from outside, and return none.
void with_own_descriptors(const std::function<void()>& work);

}  // namespace twinloft::repl::exports
