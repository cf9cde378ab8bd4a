#include "twinloft/spool-repl/core/dirty.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {
constexpr std::uint64_t pages_per_write = 64;
std::uint64_t low_bits(std::uint64_t n) {
  return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}
}  // namespace

DirtyMap::DirtyMap(const DirtySlot& slot, std::uint32_t number, std::uint64_t volume_blocks,
                   std::vector<std::uint64_t> bits)
    : slot_(slot),
      number_(number),
      volume_blocks_(volume_blocks),
      words_(std::move(bits)),
      pages_(bitmap_pages(volume_blocks)),
      marked_(pages_.size()) {
  // Without loaded bits, the pages on the disk count as different, so that they are written.
  if (words_.empty()) std::fill(pages_.begin(), pages_.end(), std::uint8_t{exceeds | marked_there});
  if (slot.peer == 0) {  // an unused slot needs no memory
    words_.clear();
    return;
  }
  words_.resize(bitmap_words(volume_blocks));
  if (volume_blocks % 64 != 0) words_.back() &= low_bits(volume_blocks % 64);
  for (std::size_t w = 0; w < words_.size(); ++w) {
    if (words_[w] == 0) continue;
    marked_[w / bitmap_page_words] = 1;
    pages_[w / bitmap_page_words] |= marked_there;
    count_ += static_cast<std::uint64_t>(std::popcount(words_[w]));
  }
}

std::span<const std::uint64_t> DirtyMap::page(std::uint64_t no) const {
  std::uint64_t first = no * bitmap_page_words;
  return std::span(words_).subspan(first, std::min<std::uint64_t>(bitmap_page_words, words_.size() - first));
}

void DirtyMap::part(const Epoch& epoch, const LogMark& mark) {
  if (!slot_.known || mark.lsn < slot_.since.lsn) return;
  slot_.since_epoch = epoch;
  slot_.since = mark;
  fresh_.assign(words_.size(), 0);
}

void DirtyMap::since_is_durable(Lsn since) {
  if (fresh_.empty() || since < slot_.since.lsn) return;
  words_ = std::exchange(fresh_, {});
  count_ = 0;
  for (std::size_t p = 0; p < pages_.size(); ++p) count_page(p);
}

// Call it after marks of the page were removed.
void DirtyMap::count_page(std::size_t no) {
  std::uint64_t marks = 0;
  for (std::uint64_t w : page(no)) marks += static_cast<std::uint64_t>(std::popcount(w));
  count_ += marks;
  marked_[no] = marks != 0;
  if (pages_[no] & marked_there)
    pages_[no] |= exceeds;
  else if (marks == 0)
    pages_[no] = 0;
}

void DirtyMap::mark(Lba lba, std::uint64_t blocks) {
  if (slot_.peer == 0) return;
  if (!fresh_.empty()) set_bitmap_bits(fresh_, lba, blocks);
  std::uint64_t at = lba.v, end = lba.v + blocks;
  TL_CHECK(end <= volume_blocks_);
  while (at < end) {
    std::uint64_t n = std::min(64 - at % 64, end - at), w = at / 64;
    std::uint64_t bits = low_bits(n) << (at % 64), fresh = bits & ~words_[w];
    if (fresh != 0) {
      words_[w] |= fresh;
      count_ += static_cast<std::uint64_t>(std::popcount(fresh));
      marked_[w / bitmap_page_words] = 1;
      pages_[w / bitmap_page_words] |= lacks;
    }
    at += n;
  }
}

void DirtyMap::covered(const Epoch& epoch, const LogMark& mark, bool clean) {
  if (slot_.known && mark.lsn < slot_.since.lsn) return;
  // An unknown replica becomes known only when it lacks nothing.
  if (!slot_.known && !clean) return;
  slot_.known = true;
  slot_.since_epoch = epoch;
  slot_.since = mark;
  if (!clean) return;
  fresh_.clear();
  if (count_ == 0) return;
  for (std::size_t p = 0; p < marked_.size(); ++p) {
    if (!marked_[p]) continue;
    std::size_t first = p * bitmap_page_words;
    std::fill_n(words_.begin() + static_cast<std::ptrdiff_t>(first), page(p).size(), 0);
    marked_[p] = 0;
    pages_[p] = pages_[p] & marked_there ? std::uint8_t{exceeds | marked_there} : std::uint8_t{0};
  }
  count_ = 0;
}

void DirtyMap::forget() {
  fresh_.clear();
  slot_.known = false;
  slot_.since_epoch = {};
  slot_.since = {};
}

void DirtyMap::write(Pages which, const Superblock& sb, std::vector<BitmapWrite>& out) {
  if (!slot_.known) return;
  std::uint8_t wanted = which == Pages::lacking ? std::uint8_t{lacks} : std::uint8_t{lacks | exceeds};
  BitmapWrite* run = nullptr;
  std::uint64_t run_end = 0;
  for (std::uint64_t p = 0; p < pages_.size(); ++p) {
    if ((pages_[p] & wanted) == 0) continue;
    if (!run || run_end != p || run->bytes.size() >= pages_per_write * block_size) {
      run = &out.emplace_back();
      run->offset = sb.bitmap_offset + number_ * sb.bitmap_bytes + p * block_size;
    }
    std::size_t at = run->bytes.size();
    run->bytes.resize(at + block_size);
    encode_bitmap_page(sb.volume, number_, p, page(p), MutableByteSpan(run->bytes).subspan(at));
    run_end = p + 1;
    pages_[p] = marked_[p] ? std::uint8_t{marked_there} : std::uint8_t{0};
  }
}

}  // namespace twinloft::repl::core
