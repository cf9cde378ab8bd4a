// The scan of a log's segments: which groups are still needed, and where the next one belongs.
//
// It trusts no length, and its work grows with the log's size only. docs/formats/intake-log.md has its rules.
// No I/O of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"
#include "twinloft/intake_log/group.h"
#include "twinloft/intake_log/mark.h"
#include "twinloft/intake_log/place.h"

namespace twinloft::intake_log {

class SegmentReader {
 public:
  virtual ~SegmentReader() = default;
  // offset, size and address of `out` are multiples of block_bytes. A file that ends earlier is an error.
  virtual Status read(std::uint32_t segment, std::uint64_t offset, MutableByteSpan out) const = 0;
};

// Needed groups that cannot be read, although later groups exist. Their messages are lost, as far as they are
// not in their Maildirs.
struct Damage {
  std::uint64_t first_group = 0, end_group = 0;
  std::uint64_t first_entry = 0, end_entry = 0;
  std::string why;
};

struct Scan {
  std::vector<GroupHeader> groups;  // needed and whole, by number
  std::vector<Damage> damage;       // by number
  std::optional<Position> torn;     // the newest group, whose write did not end: it was never acknowledged
  Position end;                     // where the next group may begin
  std::uint64_t next_group = 0;
  std::uint64_t next_entry = 0;
  std::uint64_t retired = 0;  // as the newest group says
};
// A log without any group is new. Errors: those of the reader; Errc::invalid (the shape, or the newest group
// is of a newer version); Errc::conflict (only groups of another log); Errc::corrupt (headers that no program
// wrote).
Result<Scan> scan(const LogShape& shape, const Uuid& incarnation, const SegmentReader& reader);

// Whether the mark belongs to what the log says. Errors: Errc::conflict (it is older than the log, or says
// more than the log).
Status check_mark(const Mark& mark, const Scan& scan);

// Where a group of this size begins, if the group before ends at `end`. A group never crosses a segment's
// end.
Position place_for(const LogShape& shape, Position end, std::size_t bytes);
// Where a group ends.
Position end_of(const LogShape& shape, Position at, std::size_t bytes);

}  // namespace twinloft::intake_log
