// The LSN that was durable in a journal at each moment, from the writes to the journal.
#pragma once

#include <map>
#include <vector>

#include "event_log.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/superblock.h"

namespace twinloft::power {

class FlushPoints {
 public:
  explicit FlushPoints(const repl::Superblock& sb) : sb_(sb), durable_(sb.tail.lsn), arrived_(sb.tail.lsn) {}

  void apply(const EventReader::Item& item);
  repl::Lsn durable() const { return durable_; }  // every record up to here has been written and answered
  repl::Lsn arrived() const { return arrived_; }  // the highest record of which a part may be in the journal
  const std::vector<repl::Lsn>& record_ends() const { return ends_; }  // ascending

 private:
  struct Record {
    repl::Lsn first, last;
    std::uint64_t offset = 0, bytes = 0, done = 0;
  };
  void on_write(const Event& event, ByteSpan bytes);
  void on_done(std::uint64_t id);

  repl::Superblock sb_;
  repl::Lsn durable_, arrived_;
  std::vector<repl::Lsn> ends_;
  std::vector<Record> under_way_;
  struct Part {
    repl::Lsn record;  // its first LSN
    std::uint64_t bytes;
  };
  // by id of the write: a large record needs several
  std::map<std::uint64_t, Part> parts_;
  std::map<std::uint64_t, std::uint64_t> durable_ahead_;  // first -> last LSN of records after a gap
};

}  // namespace twinloft::power
