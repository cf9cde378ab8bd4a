// Which blocks another replica may lack: a bitmap for each, kept by primary and secondaries alike, since any
// of them may have to bring that replica up to date one day.
//
// Meaning: that replica's content, if it is this history up to `since` at all (its own disk has to vouch for
// that), differs from the content here at most in the marked blocks. A bit is set in memory when a record is
// committed. Before the journal's tail passes a record its bits are durable; `since` moves, durably, before a
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
  // That replica has everything up to here; `clean`: and no record behind it is committed here.
  void covered(const Epoch& epoch, const LogMark& mark, bool clean);
  void forget();  // nothing is known of it any more
  // It leaves, having everything that is committed here: marks from now on are kept apart from earlier marks,
  // which go as soon as the superblock with this `since` is durable. So the marks are exactly what came after
  // the parting, unless a crash comes before the pages that tell less are written.
  void part(const Epoch& epoch, const LogMark& mark);
  void since_is_durable(Lsn since);

  // Pages that lack a mark on the disk; or those too that have marks there which are gone here.
  enum class Pages { lacking, any_change };
  void write(Pages which, const Superblock& sb, std::vector<BitmapWrite>& out);

 private:
  // On the disk: lacks a mark, has a mark that is gone here, has any mark at all.
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
  std::vector<std::uint64_t> fresh_;  // marked since part(), while that is not durable
};

}  // namespace twinloft::repl::core
