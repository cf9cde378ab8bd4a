// One file on a disk with a volatile cache, replayed from the log of power_disk.
//
// A write is durable if it was O_DSYNC and has been answered. It is also durable if it was answered before a
// sync arrived, and that sync has been answered. Everything else that arrived is volatile. After a power cut,
// all of it, none of it, or any of its 512-byte sectors may be on the disk.
//
// A file holds the durable content. cut() writes a random part of the volatile content into it. undo()
// removes that part, so that the next cut starts from there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "event_log.h"
#include "twinloft/base/random.h"

namespace twinloft::power {

struct Losses {  // of one cut
  std::uint64_t kept = 0, dropped = 0, torn = 0;
  std::uint64_t writes() const { return kept + dropped + torn; }
};

enum class CutStyle { drop_all, keep_all, mixed };

class DiskModel {
 public:
  // `path` holds the content at the start of the log, and is changed from now on.
  static Result<DiskModel> open(const std::string& path);

  // `number` counts the log's events.
  Status apply(const EventReader::Item& item, std::uint64_t number);
  Result<Losses> cut(CutStyle style, SeededRandom& random);
  Status undo();
  int fd() const { return fd_.get(); }
  std::uint64_t size_bytes() const { return size_; }

 private:
  struct Range {
    std::uint64_t offset, length;
  };
  struct Write {
    std::uint64_t offset, length;
    const std::byte* bytes;         // null: zeros
    std::uint64_t done_number = 0;  // number of the event that answered the write; 0: none yet
    bool dsync = false;
    std::vector<bool> overwritten;  // sectors with later durable content; empty: none
    bool covers(std::uint64_t at, std::uint64_t n) const { return offset < at + n && at < offset + length; }
  };

  explicit DiskModel(Fd fd) : fd_(std::move(fd)) {}
  Status make_durable(std::map<std::uint64_t, Write>::iterator it);
  Status on_sync_done(std::uint64_t id);
  Status put(const Write& write, const std::vector<bool>& leave_out);
  Status put_range(const Write& write, Range range);
  Status remember(Range range);
  static std::vector<bool> tear(const Write& write, SeededRandom& random);

  Fd fd_;
  std::uint64_t size_ = 0;
  std::map<std::uint64_t, Write> volatile_;            // by id: in the order of arrival
  std::map<std::uint64_t, std::uint64_t> sync_began_;  // id -> number of its event
  struct Old {
    std::uint64_t offset;
    std::vector<std::byte> bytes;
  };
  std::vector<Old> undo_;
};

}  // namespace twinloft::power
