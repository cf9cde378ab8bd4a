// Performs the core's disk effects on the event loop, and reports each end.
//
// Only this class gives the order on disks that the core relies on: journal writes are O_DSYNC, superblocks
// are written copy by copy, and a sync covers all operations that have ended before it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "twinloft/spool-repl/core/effects.h"
#include "twinloft/spool-repl/io/direct_file.h"
#include "twinloft/spool-repl/io/uring_loop.h"
#include "twinloft/spool-repl/journal/aligned.h"

namespace twinloft::repl::daemon {

class DiskShell {
 public:
  // report: called on the loop's thread, and never within perform().
  DiskShell(io::UringLoop& loop, io::DirectFile& journal, io::DirectFile& data,
            std::function<void(core::Event&&)> report);
  ~DiskShell();

  void perform(const core::JournalWrite& write);
  void perform(const core::JournalRead& read);
  void perform(const core::HomeRead& read);
  void perform(const core::HomeWrite& write);
  void perform(const core::HomeZero& zeros);
  void perform(const core::HomeSync& sync);
  void perform(const core::BitmapWrite& write);
  void perform(const core::SuperblockWrite& write);
  std::size_t in_flight() const { return ops_.size() - free_.size(); }
  Duration oldest(Instant now) const;  // the time of the oldest operation in flight; 0: none

 private:
  struct Op;
  Op& take(core::Token token);
  void finish(Op& op, int result);
  void write_pieces(Op& op, int fd, std::uint64_t offset, const std::vector<core::IoPiece>& pieces,
                    bool dsync);
  void start_superblock_copy(Op& op, int copy);
  void zero_by_hand(Op& op);
  static void on_done(io::DiskOp& op);

  io::UringLoop& loop_;
  io::DirectFile& journal_;
  io::DirectFile& data_;
  std::function<void(core::Event&&)> report_;
  journal::AlignedBuffer zeros_;
  bool zeros_are_written_ = false;  // the data area can neither punch holes nor zero a range
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Op*> free_;
};

}  // namespace twinloft::repl::daemon
