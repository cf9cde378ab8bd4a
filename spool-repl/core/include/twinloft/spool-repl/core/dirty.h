// The blocks that another replica may lack: a bitmap for each replica, on the primary and on secondaries,
// since each of them may later have to fill that replica.
//
// If the content of that replica is this history up to `since` (which its own disk must confirm), it differs
// from the content here at most in the marked blocks. A bit is set in memory when a record is committed. The
// bits of a record are durable before the journal's tail passes the record. `since` moves durably before a
// bit is cleared on the disk.
#pragma once

#include <span>
#include <vector>

#include "twinloft/spool-repl/core/effects.h"
#include "twinloft/spool-repl/core/log.h"
#include "twinloft/spool-repl/format/bitmap.h"

namespace twinloft::repl::core {

class DirtyMap {
 public:
  DirtyMap(const DirtySlot& slot, std::uint32_t number, std::uint64_t volume_blocks,
           std::vector<std::uint64_t> bits);

  const DirtySlot& slot() const { return slot_; }
  std::uint64_t count() const { return count_; }  // marked blocks
  const std::vector<std::uint64_t>& words() const { return words_; }

  void mark(Lba lba, std::uint64_t blocks);
  // That replica has everything up to `mark`. clean: no later record is committed here.
  void covered(const Epoch& epoch, const LogMark& mark, bool clean);
  void forget();  // that replica's content is unknown from now on
  // That replica leaves, with everything that is committed here. Later marks are separate from earlier marks,
  // which are removed once the superblock with this `since` is durable. So the marks are exactly the later
  // blocks, unless a crash comes before the cleared pages are written.
  void part(const Epoch& epoch, const LogMark& mark);
  void since_is_durable(Lsn since);

  // The pages to write: pages that lack a mark on the disk, or also pages with marks on the disk that are
  // cleared here.
  enum class Pages { lacking, any_change };
  void write(Pages which, const Superblock& sb, std::vector<BitmapWrite>& out);

 private:
  // The page on the disk lacks a mark, has a mark that is cleared here, has any mark.
  enum PageState : std::uint8_t { lacks = 1, exceeds = 2, marked_there = 4 };
  std::span<const std::uint64_t> page(std::uint64_t no) const;
  void count_page(std::size_t no);

  DirtySlot slot_;
  std::uint32_t number_;
  std::uint64_t volume_blocks_;
  std::vector<std::uint64_t> words_;
  std::vector<std::uint8_t> pages_;   // PageState
  std::vector<std::uint8_t> marked_;  // pages with marks here
  std::uint64_t count_ = 0;
  std::vector<std::uint64_t> fresh_;  // marks since part(), until `since` is durable
};

}  // namespace twinloft::repl::core
