// The memory of an arena. It is allocated at the start, so that no page fault and no failure comes later. It
// has huge pages if possible: a direct write pins a huge page instead of 512 small pages.
#pragma once

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::daemon {

class ArenaMemory {
 public:
  ArenaMemory() = default;
  ~ArenaMemory();
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  Status map(std::uint64_t bytes);  // call it once
  MutableByteSpan span() { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;  // aligned to a huge page
  std::uint64_t bytes_ = 0;
  void* mapped_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
};

}  // namespace twinloft::repl::daemon
