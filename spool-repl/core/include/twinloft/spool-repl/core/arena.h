// The arena: a fixed number of 4 KiB blocks, preallocated, counted by reference. All I/O memory of a volume
// is here.
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
  std::size_t free() const { return free_; }
  std::size_t used() const { return size() - free(); }

  // One reference; there must be a free slot. The next one in memory behind the last that was taken: blocks
  // that come together mostly lie side by side, and go to disk and network in few pieces.
  Slot take();
  void ref(Slot slot);
  void unref(Slot slot);  // the last one frees
  std::byte* data(Slot slot);
  const std::byte* data(Slot slot) const;

 private:
  MutableByteSpan memory_;
  std::vector<std::uint16_t> refs_;
  std::size_t next_free(std::size_t from) const;

  std::vector<std::uint64_t> free_bits_;   // one for each slot
  std::vector<std::uint64_t> free_words_;  // one for each word of free_bits_: whether it has any
  std::size_t free_ = 0;
  std::size_t next_ = 0;  // where take() looks first
};

}  // namespace twinloft::repl::core
