// The log of records in the journal ring, from the tail (earlier records are in the data area) to the head.
//
//   tail ........ committed ........ durable here ........ head
//
// It has no I/O. It places records in the ring, and knows how far they are durable without a gap, and how far
// they are committed. Records are numbered from the start of the process on, and a number decreases only by a
// cut.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "twinloft/spool-repl/core/arena.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::core {

using RecordNo = std::uint64_t;
// The number of the first record that recovery finds. Older records, in a spill, have smaller numbers.
inline constexpr RecordNo first_record_no = RecordNo{1} << 40;

struct LogRecord {
  LogMark mark;  // last LSN and body hash
  Lsn first;
  Epoch epoch;  // in which it was written
  RecordType type = RecordType::data;
  EpochChange epoch_change;  // for an epoch record
  JournalPos pos;
  std::uint32_t total_blocks = 0;
  std::uint32_t meta_bytes = 0;
  std::uint64_t serial = 0;  // the primary's batch serial
  bool durable = false;      // on this replica
  // In memory until the record is committed. Afterwards the journal has it.
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

  // A position for a record; nullopt: no space. A record does not wrap: if it does not fit before the ring's
  // end, it starts at the ring's beginning.
  std::optional<JournalPos> place(std::uint32_t blocks) const;
  std::uint64_t used_bytes() const { return head_.v - tail_pos_.v; }
  std::uint64_t bytes_behind(RecordNo no) const {
    return head_.v - pos_before(no).v;
  }  // of `no` and all later records
  std::uint64_t ring_bytes() const { return ring_bytes_; }

  RecordNo append(LogRecord record);  // record.pos is from place() or from recovery
  LogRecord& at(RecordNo no);
  const LogRecord& at(RecordNo no) const;
  RecordNo first() const { return base_; }
  RecordNo end() const { return base_ + records_.size(); }

  // The first record that is not durable, or not committed.
  RecordNo durable_end() const { return durable_end_; }
  RecordNo committed_end() const { return committed_end_; }
  void set_durable(RecordNo no);  // moves durable_end() over all durable records without a gap
  // This record and all later records do not count as durable before release_durable().
  void hold_durable(RecordNo no) { held_ = std::min(held_, no); }
  void release_durable();
  void set_committed_end(RecordNo end);

  // The mark of the last record before `end`. Without such a record, the tail's mark.
  LogMark mark_before(RecordNo end) const;
  LogMark last_mark() const { return mark_before(end()); }
  LogMark tail_mark() const { return tail_mark_; }
  Epoch epoch_before(RecordNo end) const;
  JournalPos tail_pos() const { return tail_pos_; }
  JournalPos pos_before(RecordNo end) const;  // the position of record `end` (also of a future record),
                                              // without wrap

  // One past the record that ends with this mark, as all positions here are ends. first() stands for the
  // tail's mark. nullopt: the log has no such record.
  std::optional<RecordNo> find(const LogMark& mark) const;
  // One past the last record with mark.lsn <= lsn.
  RecordNo end_upto(Lsn lsn) const;

  void drop_before(RecordNo new_first);  // the tail moved
  // Removes all records from `new_end` on. The caller has released their slots.
  void cut(RecordNo new_end);
  // Empties the log, and continues after `tail` of another history. The ring's positions continue too. The
  // caller has released the slots.
  void reset(const LogMark& tail, const Epoch& tail_epoch);

 private:
  std::uint64_t ring_bytes_;
  JournalPos tail_pos_, head_;
  LogMark tail_mark_;
  Epoch tail_epoch_;
  RecordNo base_ = first_record_no, durable_end_ = first_record_no, committed_end_ = first_record_no;
  RecordNo held_ = UINT64_MAX;
  std::deque<LogRecord> records_;
};

}  // namespace twinloft::repl::core
