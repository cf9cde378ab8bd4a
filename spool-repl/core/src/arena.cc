#include "twinloft/spool-repl/core/arena.h"

#include <bit>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::core {

namespace {

constexpr std::size_t none = SIZE_MAX;
constexpr std::size_t word_bits = 64;
constexpr std::size_t words_for(std::size_t bits) {
  return (bits + word_bits - 1) / word_bits;
}
void set_bit(std::vector<std::uint64_t>& words, std::size_t bit) {
  words[bit / word_bits] |= std::uint64_t{1} << bit % word_bits;
}
void clear_bit(std::vector<std::uint64_t>& words, std::size_t bit) {
  words[bit / word_bits] &= ~(std::uint64_t{1} << bit % word_bits);
}

// The first bit from `bit` on that is set in the same word.
std::size_t in_word(const std::vector<std::uint64_t>& words, std::size_t bit) {
  if (bit / word_bits >= words.size()) return none;
  std::uint64_t left = words[bit / word_bits] & (~std::uint64_t{0} << bit % word_bits);
  return left == 0 ? none : bit / word_bits * word_bits + static_cast<std::size_t>(std::countr_zero(left));
}

}  // namespace

Arena::Arena(MutableByteSpan memory)
    : memory_(memory),
      refs_(memory.size() / block_size),
      free_bits_(words_for(refs_.size())),
      free_words_(words_for(free_bits_.size())),
      free_(refs_.size()) {
  TL_CHECK(memory.size() % block_size == 0);
  for (std::size_t i = 0; i < refs_.size(); ++i) set_bit(free_bits_, i);
  for (std::size_t i = 0; i < free_bits_.size(); ++i) set_bit(free_words_, i);
}

// The first free slot from `from` on. `none`: no slot is free up to the end.
std::size_t Arena::next_free(std::size_t from) const {
  if (std::size_t found = in_word(free_bits_, from); found != none) return found;
  for (std::size_t word = from / word_bits + 1; word < free_bits_.size();
       word = (word / word_bits + 1) * word_bits)
    if (std::size_t with_free = in_word(free_words_, word); with_free != none)
      return in_word(free_bits_, with_free * word_bits);
  return none;
}

Slot Arena::take() {
  TL_CHECK(free_ > 0);
  std::size_t slot = next_free(next_);
  if (slot == none) slot = next_free(0);
  --free_;
  next_ = slot + 1;
  clear_bit(free_bits_, slot);
  if (free_bits_[slot / word_bits] == 0) clear_bit(free_words_, slot / word_bits);
  refs_[slot] = 1;
  return static_cast<Slot>(slot);
}

void Arena::ref(Slot slot) {
  TL_CHECK(refs_[slot] > 0 && refs_[slot] < UINT16_MAX);
  ++refs_[slot];
}

void Arena::unref(Slot slot) {
  TL_CHECK(refs_[slot] > 0);
  if (--refs_[slot] > 0) return;
  ++free_;
  set_bit(free_bits_, slot);
  set_bit(free_words_, slot / word_bits);
}

std::byte* Arena::data(Slot slot) {
  return memory_.data() + std::size_t{slot} * block_size;
}
const std::byte* Arena::data(Slot slot) const {
  return memory_.data() + std::size_t{slot} * block_size;
}

}  // namespace twinloft::repl::core
