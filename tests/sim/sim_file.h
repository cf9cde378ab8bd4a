// A simulated disk with a volatile write cache.
//
// `now` is what a read sees, `media` what a power cut leaves. Writes stand between the two until a sync; a
// power cut keeps, tears (at 512-byte sectors) or loses each of them on its own.
//
// A disk is a table of pages that are never changed once they are in it, so a copy of a disk, of which a run
// makes hundreds, copies no content. All offsets and lengths are multiples of a page.
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

// One block of a disk, shared by all that hold this content; empty: zeros. One thread only.
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
  // The word that fills the whole block; nullopt: it holds different ones.
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
  // Number of the last write; sync_upto makes durable what had been written when this was read.
  std::uint64_t last_write() const { return next_write_ - 1; }
  void sync_upto(std::uint64_t write);
  // A sync that failed: what it was to make durable may or may not be, and no later sync looks at it again.
  void fail_sync(SeededRandom& random);
  void write_blocks(std::uint64_t offset, std::vector<Page> blocks);
  void write_durable(std::uint64_t offset, const std::vector<Page>& blocks);  // as with O_DSYNC
  // A write that was under way when the power went: some of its sectors, in any combination.
  void tear(std::uint64_t offset, const std::vector<Page>& blocks, SeededRandom& random);
  void power_cut(SeededRandom& random);
  // A page that cannot be read until it is written again, durably if a power cut comes. What lies beneath
  // stays.
  void make_unreadable(std::uint64_t offset);
  void make_readable(std::uint64_t offset);                      // the disk has succeeded after all
  std::vector<std::uint64_t> flawed() const;                     // pages that cannot be read, or are wrong
  bool readable(std::uint64_t page, std::uint64_t pages) const;  // as they were written, too
  // A page that returns something else than what was written, until it is written again. page() goes on
  // returning that.
  void make_wrong(std::uint64_t offset, const Page& content);
  void make_right();                                      // all of these
  void flip(std::uint64_t offset, SeededRandom& random);  // bits of one byte, at rest

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
    void forget(std::uint64_t first, std::uint64_t count);  // written
  };
  Flaws flaws_, flaws_media_;  // as now_ and media_
};

}  // namespace twinloft::repl::sim
