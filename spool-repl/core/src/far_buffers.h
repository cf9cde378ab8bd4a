// The records that replicas behind buffered links lack: what this replica keeps for each of them, on the
// primary and on the members that may become primary, and how far each lags.
//
//             the lag is at the bound, and no writer may wait for it
//   keeps -----------------------------------------------------------> given up
//     ^                                                                   |
//     +---------- the replica follows records again ----------------------+
//
// Records are kept in the journal, whose tail does not pass them (hold()), and then in the spill. Without
// I/O.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "spill_index.h"
#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/core/log.h"

namespace twinloft::repl::core {

// When records were written: a point in each interval, and fewer once there are many.
class WriteTimes {
 public:
  explicit WriteTimes(Duration interval) : interval_(interval), spacing_(interval) {}
  void note(RecordNo end, Instant now);
  void drop_before(RecordNo no);  // nobody asks about earlier records
  // A time at which record `no` was not written yet, as late as known. For the oldest records: the time since
  // which they are known here. nullopt: nothing is known.
  std::optional<Instant> before(RecordNo no) const;

 private:
  static constexpr std::size_t points_max = 4096;
  struct Point {
    RecordNo end;  // the records before it had been written by then
    Instant at;
  };
  Duration interval_, spacing_;
  std::deque<Point> points_;
};

// Whether a line can carry the volume's writes, so that a resync over it makes sense. The highest rate that
// was measured on the line is compared with the writes of the last intervals.
class LineRate {
 public:
  static constexpr unsigned intervals = 10;
  explicit LineRate(Duration interval) : interval_(interval) {}

  // `written`: bytes of the journal so far. `arrived`: the part of them that the replica has; nullopt: it
  // does not receive records. Does nothing before next().
  void note(std::uint64_t written, std::optional<std::uint64_t> arrived, Instant now);
  // The writes would fill at most three quarters of the line. True also without a measured rate.
  bool carries_the_load() const;
  Instant next() const { return due_; }

 private:
  struct Point {
    Instant at;
    std::uint64_t bytes;
  };
  static double rate(const Point& from, const Point& to);
  Duration interval_;
  Instant due_{};
  std::optional<Point> arrived_;
  std::deque<Point> written_;  // at the ends of the last intervals
  double best_ = 0;            // bytes a second on the line
};

struct FarBuffer {
  ReplicaId of = 0;
  BufferConfig config;
  LineRate line;
  RecordNo need;          // the replica has everything before this record, as far as is known here
  LogMark has{};          // the mark before `need`
  bool asked = false;     // the primary has asked this replica to keep records
  Instant progress_at{};  // the last change of `need`, or the time at which the lag reached the bound
  bool full = false;      // until the lag is well below the bound again
  std::optional<Instant> given_up_at{};

  bool given_up() const { return given_up_at.has_value(); }
};

class FarBuffers {
 public:
  // readable_from: earlier records cannot be read from the damaged journal. It may grow.
  FarBuffers(const Config& config, const Log& log, const RecordNo& readable_from);

  bool empty() const { return buffers_.empty(); }
  auto begin() { return buffers_.begin(); }
  auto end() { return buffers_.end(); }
  auto begin() const { return buffers_.begin(); }
  auto end() const { return buffers_.end(); }
  FarBuffer* find(ReplicaId id);
  const FarBuffer* find(ReplicaId id) const { return const_cast<FarBuffers*>(this)->find(id); }

  void note_time(Instant now);
  // The replica has everything before `no`, up to this mark, and follows records. If that brings it well
  // below the bound, it is not given up any more. Otherwise it may go on with what the journal still has.
  void follows(FarBuffer& b, RecordNo no, const LogMark& mark, Instant now);
  void follows(FarBuffer& b, RecordNo no, Instant now) { follows(b, no, log_.mark_before(no), now); }
  void give_up(FarBuffer& b, Instant now);
  // The first record that the replica lacks is here and readable, and so are all behind it.
  bool reaches(const FarBuffer& b) const {
    return spill_.holds(b.need) || b.need >= std::max(log_.first(), readable_from_);
  }
  void on_cut();               // the log has lost its newest records
  void on_reset(Instant now);  // the log is empty, and of another history

  // bytes of the journal
  std::uint64_t bound(const FarBuffer& b) const;
  std::uint64_t lag_bytes(const FarBuffer& b) const;
  Duration lag(const FarBuffer& b, Instant now) const;
  bool keeps_for(ReplicaId id) const {
    const FarBuffer* b = find(id);
    return b && !b->given_up();
  }
  bool at_bound(const FarBuffer& b) const { return !b.given_up() && fill(b) >= 1; }
  // Beyond the bound by an eighth: the journals of two replicas place records differently.
  bool far_beyond(const FarBuffer& b) const { return !b.given_up() && fill(b) > 1.125; }
  // Well below the bound, so that a full buffer is not reported again at once.
  bool eased(const FarBuffer& b) const { return fill(b) < 0.75; }
  // The journal's tail stays at or before this record. UINT64_MAX: no replica needs one.
  RecordNo hold() const;
  // A buffer that slows writers down is at its bound.
  bool writers_wait() const;
  BufferStatus status(const FarBuffer& b, Instant now) const;

  // ---- the spill
  const SpillIndex& spill() const { return spill_; }
  bool keeps_any() const;
  RecordNo spill_from() const;  // the next record to spill; UINT64_MAX: none
  bool load_spill(const std::vector<SpillChunk>& chunks, Instant now);  // false: it is dropped
  // Whether the chunk continues the spill, or begins it with records that are needed.
  bool spill_wants(const SpillIndex::Held& held) const;
  void add_to_spill(const SpillIndex::Held& held) { spill_.add(held); }
  void drop_unneeded();                        // chunks
  void lose_spill(RecordNo end, Instant now);  // up to there. What needs it is given up
  bool spill_failing() const { return spill_failing_; }
  void set_spill_failing(bool failing) { spill_failing_ = failing; }

 private:
  double fill(const FarBuffer& b) const;          // 1: at the bound
  double journal_fill(const FarBuffer& b) const;  // the part of it that the spill does not take
  std::uint64_t pos_before(RecordNo no) const;
  RecordNo oldest_need() const;

  const bool can_spill_;
  bool spill_failing_ = false;
  SpillIndex spill_;
  const Log& log_;
  const RecordNo& readable_from_;
  std::vector<FarBuffer> buffers_;
  WriteTimes times_;
};

}  // namespace twinloft::repl::core
