// The memory of a simulated process. Only touched pages cost anything. At first it is zeros. A process that
// starts again may find the content of an earlier process of the run, unlike real memory from the kernel. No
// code may read memory that it has not written. The content is the same whenever a run is repeated.
#pragma once

#include <sys/mman.h>

#include <map>
#include <new>
#include <vector>

#include "twinloft/base/bytes.h"

namespace twinloft::repl::sim {

class SimMemory {
 public:
  explicit SimMemory(std::size_t bytes) : bytes_(bytes) {
    auto& spare = spares()[bytes];
    if (!spare.empty()) {
      start_ = spare.back();
      spare.pop_back();
      return;
    }
    constexpr std::size_t huge = 2u << 20;
    void* area = mmap(nullptr, bytes + huge, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(area) + (huge - reinterpret_cast<std::uintptr_t>(area) % huge) % huge;
    madvise(start_, bytes_, MADV_HUGEPAGE);  // fewer page faults
  }
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;
  ~SimMemory() { spares()[bytes_].push_back(start_); }
  MutableByteSpan span() { return {static_cast<std::byte*>(start_), bytes_}; }

  // Between two runs, spare memory reads as zeros again, because it is private and anonymous.
  static void begin_run() {
    for (auto& [bytes, spare] : spares())
      for (void* start : spare) madvise(start, bytes, MADV_DONTNEED);
  }

 private:
  static std::map<std::size_t, std::vector<void*>>& spares() {
    static std::map<std::size_t, std::vector<void*>> all;
    return all;
  }
  std::size_t bytes_;
  void* start_;
};

}  // namespace twinloft::repl::sim
