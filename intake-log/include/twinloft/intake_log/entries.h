// The entries of a log that are not retired, with their content: what a replay, or a salvage, works on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"
#include "twinloft/intake_log/group.h"
#include "twinloft/intake_log/mark.h"
#include "twinloft/intake_log/place.h"
#include "twinloft/intake_log/scan.h"

namespace twinloft::intake_log {

struct LogEntry {
  std::uint64_t number = 0;
  EntryName name;
  std::string_view content;
  bool cancelled = false;
  std::size_t group = 0;  // index in Scan::groups
};

// Owns the bytes that its entries point into. Needs memory of the size of all needed groups.
class LogEntries {
 public:
  // Reads the groups of the scan. Errors: those of the reader; Errc::corrupt if a group's records contradict
  // its header, although its checksum is right.
  static Result<LogEntries> read(const Scan& scan, const SegmentReader& reader);

  std::span<const LogEntry> entries() const { return entries_; }  // by number

 private:
  struct Free {
    void operator()(std::byte* at) const;
  };
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  std::vector<LogEntry> entries_;
};

// Whether the scan has entries, not retired, of another mount than this one, or damage. Only a replay may
// retire these.
bool needs_replay(const Scan& scan, const MountInstance& mount);

}  // namespace twinloft::intake_log
