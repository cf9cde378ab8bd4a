// The log of records in the journal ring: from the tail (everything before it is in the data area) to the
// head.
//
//   tail ........ committed ........ durable here ........ head
//
// Pure bookkeeping: places records in the ring, knows which are durable here in an unbroken row, and which
// are committed. A record's number counts from the start of the process and never goes back except by a cut.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "twinloft/spool-repl/core/arena.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::core {

using RecordNo = std::uint64_t;

struct LogRecord {
  LogMark mark;  // last LSN and body hash
  Lsn first;
  Epoch epoch;  // that it was written in
  RecordType type = RecordType::data;
  EpochChange epoch_change;  // for an epoch record
  JournalPos pos;
  std::uint32_t total_blocks = 0;
  std::uint32_t meta_bytes = 0;
  std::uint64_t serial = 0;  // the primary's batch serial
  bool durable = false;      // on this replica
  // In memory until committed; afterwards the journal has it.
  std::vector<Slot> meta_slots;
  std::vector<Slot> payload_slots;
  std::vector<Extent> extents;
  bool in_memory() const { return !meta_slots.empty(); }
};

struct RingGeometry {
  std::uint64_t bytes = 0;
  JournalPos tail;
};

class Log {
 public:
  Log(RingGeometry ring, LogMark tail_mark, Epoch tail_epoch);

  // Space. A record never wraps: where it does not fit before the ring's end it starts at its beginning.
  std::optional<JournalPos> place(std::uint32_t blocks) const;
  std::uint64_t used_bytes() const { return head_.v - tail_pos_.v; }
  std::uint64_t bytes_behind(RecordNo no) const {
    return head_.v - pos_before(no).v;
  }  // of `no` and what comes after it
  std::uint64_t ring_bytes() const { return ring_bytes_; }

  RecordNo append(LogRecord record);  // record.pos as place() said, or as recovery found it
  LogRecord& at(RecordNo no);
  const LogRecord& at(RecordNo no) const;
  RecordNo first() const { return base_; }
  RecordNo end() const { return base_ + records_.size(); }

  // Fronts: the first record that is not yet ...
  RecordNo durable_end() const { return durable_end_; }
  RecordNo committed_end() const { return committed_end_; }
  void set_durable(RecordNo no);  // moves the front over every durable record in a row
  // This record, and what comes behind it, does not count as durable before release_durable().
  void hold_durable(RecordNo no) { held_ = std::min(held_, no); }
  void release_durable();
  void set_committed_end(RecordNo end);

  // The mark of the last record before `end`: the tail's mark where there is none.
  LogMark mark_before(RecordNo end) const;
  LogMark last_mark() const { return mark_before(end()); }
  LogMark tail_mark() const { return tail_mark_; }
  Epoch epoch_before(RecordNo end) const;
  JournalPos tail_pos() const { return tail_pos_; }
  JournalPos pos_before(RecordNo end) const;  // where the record `end` lies or would lie (without wrap)

  // One past the record that ends exactly in this mark: end numbers are what all positions here are. nullopt:
  // the log does not have it. first() stands for the tail's mark.
  std::optional<RecordNo> find(const LogMark& mark) const;
  // One past the last record with mark.lsn <= lsn.
  RecordNo end_upto(Lsn lsn) const;

  void drop_before(RecordNo new_first);  // the tail moved
  // Everything from `new_end` on is gone. The caller has released the records' slots.
  void cut(RecordNo new_end);
  // Empty, and going on behind `tail` of another history. The ring's positions go on too. Memory was released
  // before.
  void reset(const LogMark& tail, const Epoch& tail_epoch);

 private:
  std::uint64_t ring_bytes_;
  JournalPos tail_pos_, head_;
  LogMark tail_mark_;
  Epoch tail_epoch_;
  RecordNo base_ = 1, durable_end_ = 1, committed_end_ = 1;
  RecordNo held_ = UINT64_MAX;
  std::deque<LogRecord> records_;
};

}  // namespace twinloft::repl::core
