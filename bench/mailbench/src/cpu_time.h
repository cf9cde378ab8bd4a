// Processor time in user space and in the kernel.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace twinloft::mailbench {

// who: as for getrusage(2), such as RUSAGE_THREAD or RUSAGE_CHILDREN.
inline std::uint64_t cpu_ns(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  auto ns = [](const timeval& t) {
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(t.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

}  // namespace twinloft::mailbench
