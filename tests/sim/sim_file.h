// A simulated disk with a volatile write cache.
//
// `now` is what a read returns. `media` is what a power cut leaves. Writes are between the two until a sync.
// A power cut keeps, tears (at 512-byte sectors) or loses each of them separately.
//
// A disk is a table of immutable pages, so a copy of a disk copies no content. A run makes hundreds of
// copies. All offsets and lengths are multiples of a page.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "twinloft/base/random.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::sim {

// One block of a disk, shared by all places with this content. Empty: zeros. For one thread only.
class Page {
 public:
  Page() = default;
  static Page of(const std::byte* block);
  Page(const Page& o) : data_(o.data_) {
    if (data_) ++data_->refs;
  }
  Page(Page&& o) noexcept : data_(std::exchange(o.data_, nullptr)) {}
  Page& operator=(Page o) noexcept {
    std::swap(data_, o.data_);
    return *this;
  }
  ~Page() {
    if (data_ && --data_->refs == 0) release(data_);
  }

  void read(std::byte* out) const;
  const std::byte* bytes() const;  // of the whole block
  bool same(const Page& o) const;
  // The word that fills the whole block; nullopt: the words differ.
  std::optional<std::uint64_t> word() const;

 private:
  struct Data {
    std::uint32_t refs;
    enum class Filled : std::uint8_t { unknown, yes, no } filled;
    std::uint64_t word;
    Data* next_free;
    alignas(64) std::byte bytes[4096];
  };
  static void release(Data* data);
  static Data* free_list;
  Data* data_ = nullptr;
};

class SimFile final : public ports::BlockFile {
 public:
  SimFile(std::string name, std::uint64_t bytes);

  std::uint64_t size_bytes() const override { return now_.size() * page_bytes; }
  std::string name() const override { return name_; }
  Status read(std::uint64_t offset, MutableByteSpan out) override;
  Status write(std::uint64_t offset, ByteSpan data) override;
  Status write_zeros(std::uint64_t offset, std::uint64_t bytes) override;
  Status sync() override;

  const Page& page(std::uint64_t number) const { return now_[number]; }
  // The number of the last write. sync_upto makes the writes up to a number durable.
  std::uint64_t last_write() const { return next_write_ - 1; }
  void sync_upto(std::uint64_t write);
  // A failed sync: each of its writes may be durable or not, and no later sync writes it again.
  void fail_sync(SeededRandom& random);
  void write_blocks(std::uint64_t offset, std::vector<Page> blocks);
  void write_durable(std::uint64_t offset, const std::vector<Page>& blocks);  // as with O_DSYNC
  // A write that was in flight at a power cut: any of its sectors may be written.
  void tear(std::uint64_t offset, const std::vector<Page>& blocks, SeededRandom& random);
  void power_cut(SeededRandom& random);
  // Makes a page unreadable until it is written again; after a power cut, until it is written durably. The
  // content below it stays.
  void make_unreadable(std::uint64_t offset);
  void make_readable(std::uint64_t offset);                      // the disk can read the page after all
  std::vector<std::uint64_t> flawed() const;                     // pages that are unreadable or wrong
  bool readable(std::uint64_t page, std::uint64_t pages) const;  // also false for wrong pages
  // A page that returns other content than was written, until it is written again. page() still returns the
  // right content.
  void make_wrong(std::uint64_t offset, const Page& content);
  void make_right();                                      // ends all of these faults
  void flip(std::uint64_t offset, SeededRandom& random);  // flips bits of one byte at rest

 private:
  static constexpr std::size_t page_bytes = 4096, sector_bytes = 512;
  struct Unsynced {
    std::uint64_t number, offset;
    std::vector<Page> pages;
  };
  std::uint64_t first_page(std::uint64_t offset, std::uint64_t bytes) const;

  std::string name_;
  std::vector<Page> now_, media_;
  std::deque<Unsynced> cache_;
  std::uint64_t next_write_ = 1;
  struct Flaws {  // by page
    std::set<std::uint64_t> unreadable;
    std::map<std::uint64_t, Page> wrong;
    void forget(std::uint64_t first, std::uint64_t count);  // for written pages
  };
  Flaws flaws_, flaws_media_;  // like now_ and media_
};

}  // namespace twinloft::repl::sim
