// Which records the spill holds. They continue up to a record of the journal, or further. Without I/O.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "twinloft/spool-repl/core/log.h"
#include "twinloft/spool-repl/format/spill.h"

namespace twinloft::repl::core {

class SpillIndex {
 public:
  struct Held {
    RecordNo first;
    SpillChunk chunk;
    RecordNo end() const { return first + chunk.records; }
  };

  bool empty() const { return held_.empty(); }
  RecordNo first() const { return held_.front().first; }  // not if empty
  RecordNo end() const { return held_.empty() ? 0 : held_.back().end(); }
  bool holds(RecordNo no) const { return !empty() && first() <= no && no < end(); }
  const SpillChunk& oldest() const { return held_.front().chunk; }  // not if empty
  const Held& of(RecordNo no) const;                                // which it holds
  // The chunk with the records behind this point; nullptr: none, or the spill ends there.
  const Held* behind(Lsn lsn) const;
  // The newest chunk that ends at or before this point; nullptr: none.
  const Held* upto(Lsn lsn) const;
  // The position in the journal of a record that it holds, to within a chunk.
  JournalPos pos_before(RecordNo no) const;
  std::uint64_t bytes() const { return bytes_; }

  // The chunks of an earlier process, oldest first, of which the newest ends in the log. False: they do not
  // fit together, or not to the log, and nothing is taken.
  bool load(const std::vector<SpillChunk>& chunks, const Log& log);
  void add(const Held& held);  // continues the newest
  void drop_before(RecordNo no);
  void clear();

 private:
  std::deque<Held> held_;
  std::uint64_t bytes_ = 0;
};

}  // namespace twinloft::repl::core
