// The arena: a fixed number of 4 KiB blocks, preallocated, counted by reference. All I/O memory of a volume is here.
#pragma once

#include <cstdint>
#include <vector>

#include "twinloft/base/bytes.h"

namespace twinloft::repl::core {

using Slot = std::uint32_t;

class Arena {
 public:
  // `memory` is owned by the caller, aligned to and a multiple of block_size, and outlives the arena.
  explicit Arena(MutableByteSpan memory);

  std::size_t size() const { return refs_.size(); }  // blocks
  std::size_t free() const { return free_.size(); }
  std::size_t used() const { return size() - free(); }

  Slot take();           // one reference; there must be a free slot
  void ref(Slot slot);
  void unref(Slot slot);  // the last one frees
  std::byte* data(Slot slot);
  const std::byte* data(Slot slot) const;

 private:
  MutableByteSpan memory_;
  std::vector<std::uint16_t> refs_;
  std::vector<Slot> free_;
};

}  // namespace twinloft::repl::core
