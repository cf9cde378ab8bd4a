#include "twinloft/spool-repl/core/arena.h"

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::core {

Arena::Arena(MutableByteSpan memory) : memory_(memory), refs_(memory.size() / block_size) {
  TL_CHECK(memory.size() % block_size == 0);
  free_.reserve(refs_.size());
  for (std::size_t i = refs_.size(); i > 0; --i) free_.push_back(static_cast<Slot>(i - 1));
}

Slot Arena::take() {
  TL_CHECK(!free_.empty());
  Slot slot = free_.back();
  free_.pop_back();
  refs_[slot] = 1;
  return slot;
}

void Arena::ref(Slot slot) {
  TL_CHECK(refs_[slot] > 0 && refs_[slot] < UINT16_MAX);
  ++refs_[slot];
}

void Arena::unref(Slot slot) {
  TL_CHECK(refs_[slot] > 0);
  if (--refs_[slot] == 0) free_.push_back(slot);
}

std::byte* Arena::data(Slot slot) { return memory_.data() + std::size_t{slot} * block_size; }
const std::byte* Arena::data(Slot slot) const { return memory_.data() + std::size_t{slot} * block_size; }

}  // namespace twinloft::repl::core
