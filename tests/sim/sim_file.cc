#include "sim_file.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::repl::sim {

namespace {
alignas(64) constexpr std::byte zero_block[4096] = {};

// Calls the library's memcpy. With a known length, the compiler inserts a slower copy.
void copy_block(std::byte* to, const std::byte* from) {
  std::size_t bytes = sizeof zero_block;
  asm("" : "+r"(bytes));
  std::memcpy(to, from, bytes);
}
}  // namespace

// ---- pages

Page::Data* Page::free_list = nullptr;

Page Page::of(const std::byte* block) {
  Page page;
  if (std::memcmp(block, zero_block, sizeof zero_block) == 0) return page;
  if (!free_list) {
    constexpr std::size_t more = 256;
    Data* fresh = new Data[more];  // the program never frees it
    for (std::size_t i = 0; i < more; ++i) fresh[i].next_free = std::exchange(free_list, &fresh[i]);
  }
  page.data_ = std::exchange(free_list, free_list->next_free);
  page.data_->refs = 1;
  page.data_->filled = Data::Filled::unknown;
  copy_block(page.data_->bytes, block);
  return page;
}

void Page::release(Data* data) {
  data->next_free = std::exchange(free_list, data);
}

const std::byte* Page::bytes() const {
  return data_ ? data_->bytes : zero_block;
}
void Page::read(std::byte* out) const {
  copy_block(out, bytes());
}

bool Page::same(const Page& o) const {
  return data_ == o.data_ || std::memcmp(bytes(), o.bytes(), sizeof zero_block) == 0;
}

std::optional<std::uint64_t> Page::word() const {
  if (!data_) return 0;
  if (data_->filled == Data::Filled::unknown) {
    // If one word fills the block, the block equals itself shifted by one word.
    bool same = std::memcmp(data_->bytes, data_->bytes + 8, sizeof data_->bytes - 8) == 0;
    data_->filled = same ? Data::Filled::yes : Data::Filled::no;
    data_->word = load_le<std::uint64_t>(data_->bytes);
  }
  if (data_->filled == Data::Filled::no) return std::nullopt;
  return data_->word;
}

// ---- the disk

SimFile::SimFile(std::string name, std::uint64_t bytes)
    : name_(std::move(name)), now_(bytes / page_bytes), media_(bytes / page_bytes) {
  TL_CHECK(bytes % page_bytes == 0);
}

void SimFile::Flaws::forget(std::uint64_t first, std::uint64_t count) {
  if (!unreadable.empty())
    unreadable.erase(unreadable.lower_bound(first), unreadable.lower_bound(first + count));
  if (!wrong.empty()) wrong.erase(wrong.lower_bound(first), wrong.lower_bound(first + count));
}

void SimFile::make_unreadable(std::uint64_t offset) {
  for (Flaws* f : {&flaws_, &flaws_media_}) f->unreadable.insert(offset / page_bytes);
}

void SimFile::make_wrong(std::uint64_t offset, const Page& content) {
  for (Flaws* f : {&flaws_, &flaws_media_}) f->wrong[offset / page_bytes] = content;
}

void SimFile::make_right() {
  for (Flaws* f : {&flaws_, &flaws_media_}) f->wrong.clear();
}

void SimFile::make_readable(std::uint64_t offset) {
  for (Flaws* f : {&flaws_, &flaws_media_}) f->forget(offset / page_bytes, 1);
}

bool SimFile::readable(std::uint64_t page, std::uint64_t pages) const {
  auto bad = flaws_.unreadable.lower_bound(page);
  auto wrong = flaws_.wrong.lower_bound(page);
  return (bad == flaws_.unreadable.end() || *bad >= page + pages) &&
         (wrong == flaws_.wrong.end() || wrong->first >= page + pages);
}

std::vector<std::uint64_t> SimFile::flawed() const {
  std::vector<std::uint64_t> pages(flaws_.unreadable.begin(), flaws_.unreadable.end());
  for (const auto& [page, content] : flaws_.wrong) pages.push_back(page);
  return pages;
}

std::uint64_t SimFile::first_page(std::uint64_t offset, std::uint64_t bytes) const {
  TL_CHECK(offset % page_bytes == 0 && bytes % page_bytes == 0 && offset + bytes <= size_bytes());
  return offset / page_bytes;
}

Status SimFile::read(std::uint64_t offset, MutableByteSpan out) {
  std::uint64_t first = first_page(offset, out.size());
  std::uint64_t pages = out.size() / page_bytes;
  auto bad = flaws_.unreadable.lower_bound(first);
  if (bad != flaws_.unreadable.end() && *bad < first + pages)
    return fail(Errc::io, "{}: reading at {}", name_, *bad * page_bytes);
  for (std::size_t i = 0; i < pages; ++i) now_[first + i].read(out.data() + i * page_bytes);
  for (auto w = flaws_.wrong.lower_bound(first); w != flaws_.wrong.end() && w->first < first + pages; ++w)
    w->second.read(out.data() + (w->first - first) * page_bytes);
  return {};
}

void SimFile::write_blocks(std::uint64_t offset, std::vector<Page> blocks) {
  std::uint64_t first = first_page(offset, blocks.size() * page_bytes);
  flaws_.forget(first, blocks.size());
  std::copy(blocks.begin(), blocks.end(), now_.begin() + static_cast<std::ptrdiff_t>(first));
  cache_.push_back({next_write_++, offset, std::move(blocks)});
}

Status SimFile::write(std::uint64_t offset, ByteSpan data) {
  std::vector<Page> blocks;
  blocks.reserve(data.size() / page_bytes);
  for (std::size_t at = 0; at < data.size(); at += page_bytes) blocks.push_back(Page::of(data.data() + at));
  write_blocks(offset, std::move(blocks));
  return {};
}

Status SimFile::write_zeros(std::uint64_t offset, std::uint64_t bytes) {
  write_blocks(offset, std::vector<Page>(bytes / page_bytes));
  return {};
}

Status SimFile::sync() {
  sync_upto(last_write());
  return {};
}

void SimFile::sync_upto(std::uint64_t write) {
  while (!cache_.empty() && cache_.front().number <= write) {
    Unsynced& u = cache_.front();
    flaws_media_.forget(u.offset / page_bytes, u.pages.size());
    std::move(u.pages.begin(), u.pages.end(),
              media_.begin() + static_cast<std::ptrdiff_t>(u.offset / page_bytes));
    cache_.pop_front();
  }
}

void SimFile::write_durable(std::uint64_t offset, const std::vector<Page>& blocks) {
  auto first = static_cast<std::ptrdiff_t>(first_page(offset, blocks.size() * page_bytes));
  for (Flaws* f : {&flaws_, &flaws_media_}) f->forget(offset / page_bytes, blocks.size());
  std::copy(blocks.begin(), blocks.end(), media_.begin() + first);
  std::copy(blocks.begin(), blocks.end(), now_.begin() + first);
}

void SimFile::tear(std::uint64_t offset, const std::vector<Page>& pages, SeededRandom& random) {
  std::uint64_t first = first_page(offset, pages.size() * page_bytes);
  // All, none, a beginning, or any mixture: a disk may write sectors in any order.
  constexpr std::size_t page_sectors = page_bytes / sector_bytes;
  std::uint64_t kind = random.below(4);
  std::size_t sectors = pages.size() * page_sectors, upto = random.below(sectors + 1);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    bool keep[page_sectors];
    for (std::size_t s = 0; s < page_sectors; ++s)
      keep[s] = kind == 0 || (kind == 2 && i * page_sectors + s < upto) ||
                (kind == 3 && random.below(2) == 0);
    auto land = [&](Page& onto) {
      if (std::all_of(keep, keep + page_sectors, [](bool k) { return k; })) {
        onto = pages[i];
        for (Flaws* f : {&flaws_, &flaws_media_}) f->forget(first + i, 1);
        return;
      }
      std::byte mixed[page_bytes];
      onto.read(mixed);
      for (std::size_t s = 0; s < page_sectors; ++s)
        if (keep[s]) std::memcpy(mixed + s * sector_bytes, pages[i].bytes() + s * sector_bytes, sector_bytes);
      onto = Page::of(mixed);
    };
    if (std::none_of(keep, keep + page_sectors, [](bool k) { return k; })) continue;
    land(media_[first + i]);
    land(now_[first + i]);
  }
}

void SimFile::fail_sync(SeededRandom& random) {
  std::vector<Page> seen = now_;  // later reads return the same as before
  Flaws flaws = flaws_;
  std::deque<Unsynced> cache = std::move(cache_);
  cache_.clear();
  for (const Unsynced& u : cache) tear(u.offset, u.pages, random);
  now_ = std::move(seen);
  flaws_ = std::move(flaws);
}

void SimFile::flip(std::uint64_t offset, SeededRandom& random) {
  std::byte block[page_bytes];
  now_[offset / page_bytes].read(block);
  block[offset % page_bytes] ^= static_cast<std::byte>(1 + random.below(255));
  write_durable(offset / page_bytes * page_bytes, {Page::of(block)});
}

void SimFile::power_cut(SeededRandom& random) {
  std::deque<Unsynced> cache = std::move(cache_);
  cache_.clear();
  for (const Unsynced& u : cache) tear(u.offset, u.pages, random);
  now_ = media_;
  flaws_ = flaws_media_;
}

}  // namespace twinloft::repl::sim
