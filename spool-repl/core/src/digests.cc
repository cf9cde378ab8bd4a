#include "digests.h"

#include <algorithm>

namespace twinloft::repl::core {

namespace {
constexpr std::size_t pages_per_write = 64;
}

Digests::Digests(const Superblock& sb, std::vector<Digest> digests, const std::vector<std::uint64_t>& changed_pages)
    : volume_(sb.volume), digests_(std::move(digests)), is_changed_(digest_pages(digests_.size())) {
  for (std::uint64_t page : changed_pages) change(page);
}

void Digests::change(std::uint64_t page) {
  if (is_changed_[page]) return;
  is_changed_[page] = true;
  changed_.push_back(page);
  sorted_ = false;
}

void Digests::put(Lba lba, const std::byte* block) {
  if (digests_.empty()) return;
  Digest digest = digest_of(volume_, lba, {block, block_size});
  if (std::exchange(digests_[lba.v], digest) != digest) change(lba.v / digest_page_blocks);
}

void Digests::put_zeros(Lba lba, std::uint64_t blocks) {
  if (digests_.empty()) return;
  for (std::uint64_t at = lba.v, end = lba.v + blocks; at < end;) {
    std::uint64_t page = at / digest_page_blocks, upto = std::min(end, (page + 1) * digest_page_blocks);
    auto first = digests_.begin() + static_cast<std::ptrdiff_t>(at), last = digests_.begin() + static_cast<std::ptrdiff_t>(upto);
    if (std::any_of(first, last, [](Digest d) { return d != digest_zeros; })) {
      std::fill(first, last, digest_zeros);
      change(page);
    }
    at = upto;
  }
}

bool Digests::fits(Lba lba, const std::byte* block) const {
  return digests_.empty() || digest_fits(digests_[lba.v], volume_, lba, {block, block_size});
}

void Digests::forget() {
  std::fill(digests_.begin(), digests_.end(), digest_unknown);
  for (std::uint64_t p = 0; p < is_changed_.size(); ++p) change(p);
}

void Digests::write(const Superblock& sb, std::size_t writes_max, std::vector<BitmapWrite>& out) {
  if (!sorted_) {
    changed_.erase(changed_.begin(), changed_.begin() + static_cast<std::ptrdiff_t>(std::exchange(next_, 0)));
    std::sort(changed_.begin(), changed_.end());
    sorted_ = true;
  }
  for (std::size_t writes = 0; next_ < changed_.size(); ++next_) {
    std::uint64_t page = changed_[next_];
    bool goes_on = writes > 0 && page == changed_[next_ - 1] + 1 && out.back().bytes.size() < pages_per_write * block_size;
    if (!goes_on) {
      if (writes++ == writes_max) return;
      out.emplace_back().offset = sb.digest_offset + page * block_size;
    }
    std::vector<std::byte>& bytes = out.back().bytes;
    bytes.resize(bytes.size() + block_size);
    std::size_t first = page * digest_page_blocks;
    encode_digest_page(volume_, page, std::span(digests_).subspan(first, std::min<std::size_t>(digest_page_blocks, digests_.size() - first)),
                       MutableByteSpan(bytes).last(block_size));
    is_changed_[page] = false;
  }
  changed_.clear();
  next_ = 0;
}

}  // namespace twinloft::repl::core
