// The arena: a fixed number of preallocated blocks of 4 KiB with reference counts. It has all I/O memory of a
// volume.
#pragma once

#include <cstdint>
#include <vector>

#include "twinloft/base/bytes.h"

namespace twinloft::repl::core {

using Slot = std::uint32_t;

class Arena {
 public:
  // memory: of the caller, aligned to block_size and a multiple of it. It must outlive the arena.
  explicit Arena(MutableByteSpan memory);

  std::size_t size() const { return refs_.size(); }  // blocks
  std::size_t free() const { return free_; }
  std::size_t used() const { return size() - free(); }

  // Takes a free slot, with one reference. A free slot must exist. The slot is the next free slot in memory
  // after the last one, so that blocks of the same time are mostly adjacent, and are written and sent in few
  // pieces.
  Slot take();
  void ref(Slot slot);
  void unref(Slot slot);  // the last reference frees the slot
  std::byte* data(Slot slot);
  const std::byte* data(Slot slot) const;

 private:
  MutableByteSpan memory_;
  std::vector<std::uint16_t> refs_;
  std::size_t next_free(std::size_t from) const;

  std::vector<std::uint64_t> free_bits_;   // a bit for each slot
  std::vector<std::uint64_t> free_words_;  // a bit for each word of free_bits_: whether any of its bits is
                                           // set
  std::size_t free_ = 0;
  std::size_t next_ = 0;  // where take() begins to search
};

}  // namespace twinloft::repl::core
