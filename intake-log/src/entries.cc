#include "twinloft/intake_log/entries.h"

#include <algorithm>
#include <new>
#include <unordered_set>

namespace twinloft::intake_log {

void LogEntries::Free::operator()(std::byte* at) const {
  ::operator delete(at, std::align_val_t{block_bytes});
}

Result<LogEntries> LogEntries::read(const Scan& scan, const SegmentReader& reader) {
  LogEntries out;
  std::unordered_set<std::uint64_t> cancelled;
  for (std::size_t i = 0; i < scan.groups.size(); ++i) {
    const GroupHeader& header = scan.groups[i];
    auto* memory = static_cast<std::byte*>(::operator new(header.bytes, std::align_val_t{block_bytes}));
    out.memory_.emplace_back(memory);
    const MutableByteSpan bytes{memory, header.bytes};
    TL_TRY(reader.read(header.at.segment, header.at.offset, bytes));
    TL_TRY_ASSIGN(Group group, decode_group(bytes));
    for (const Record& record : group.records) {
      if (const auto* cancel = std::get_if<CancelRecord>(&record)) cancelled.insert(cancel->entry);
      const auto* message = std::get_if<MessageRecord>(&record);
      for (std::size_t n = 0; message && n < message->names.size(); ++n)
        if (message->first_entry + n >= scan.retired)
          out.entries_.push_back({message->first_entry + n, message->names[n], message->content, false, i});
    }
  }
  for (LogEntry& entry : out.entries_) entry.cancelled = cancelled.contains(entry.number);
  return out;
}

bool needs_replay(const Scan& scan, const MountInstance& mount) {
  if (!scan.damage.empty()) return true;
  return std::ranges::any_of(scan.groups, [&](const GroupHeader& group) {
    return group.entries > 0 && group.end_entry() > scan.retired && group.mount != mount;
  });
}

}  // namespace twinloft::intake_log
