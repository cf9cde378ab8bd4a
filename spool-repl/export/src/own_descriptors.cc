#include "twinloft/spool-repl/export/own_descriptors.h"

#include <linux/close_range.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "twinloft/base/log.h"

namespace twinloft::repl::exports {

void with_own_descriptors(const std::function<void()>& work) {
  std::thread apart([&work] {
    // On failure, nothing is closed.
    if (::close_range(3, ~0u, CLOSE_RANGE_UNSHARE) != 0)
      log_warning("a thread for the loop device shares this process's descriptors: {}", std::strerror(errno));
    work();
  });
  apart.join();
}

}  // namespace twinloft::repl::exports
