#include "content_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "twinloft/spool-repl/journal/aligned.h"

namespace twinloft::repl::journal {

namespace {

constexpr std::uint64_t samples_max = 64;         // spread over the volume
constexpr std::uint64_t compared_min = 8;         // fewer blocks may all be damaged
constexpr std::uint64_t searched_max = 1u << 20;  // blocks for one sample: a start must not take minutes

struct Range {
  std::uint64_t begin, end;
};

// The blocks of the log's records, in order of address and without overlaps.
std::vector<Range> in_records(const RecoveredLog& log) {
  std::vector<Range> all, merged;
  for (const StoredRecord& r : log.records)
    for (const Extent& e : r.body.extents) all.push_back({e.lba.v, e.lba.v + e.blocks});
  std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (const Range& r : all) {
    if (!merged.empty() && r.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, r.end);
    else
      merged.push_back(r);
  }
  return merged;
}

class Sampler {
 public:
  explicit Sampler(const RecoveredLog& log) : log_(log), written_(in_records(log)) {}

  std::vector<std::uint64_t> run() const {
    std::vector<std::uint64_t> found;
    std::uint64_t blocks = log_.superblock.volume_blocks, samples = std::min(samples_max, blocks);
    for (std::uint64_t i = 0; i < samples; ++i) {
      std::uint64_t begin = blocks * i / samples, end = blocks * (i + 1) / samples;
      std::uint64_t stop = std::min(end, begin + searched_max), lba = first_known(begin, stop);
      if (lba < stop) found.push_back(lba);
    }
    return found;
  }

 private:
  // `end` or more: none.
  std::uint64_t first_known(std::uint64_t at, std::uint64_t end) const {
    while (at < end) {
      at = log_.digests.next_content(at, end);
      std::uint64_t behind = end_of_written(at);
      if (behind == at) return at;
      at = behind;
    }
    return at;
  }
  std::uint64_t end_of_written(std::uint64_t lba) const {
    auto next = std::upper_bound(written_.begin(), written_.end(), lba,
                                 [](std::uint64_t at, const Range& r) { return at < r.begin; });
    if (next == written_.begin()) return lba;
    return std::max(lba, std::prev(next)->end);
  }

  const RecoveredLog& log_;
  std::vector<Range> written_;
};

}  // namespace

Status check_content(const RecoveredLog& log, ports::BlockFile& data) {
  // A resync writes blocks whose digests become durable only at its end.
  const Superblock& sb = log.superblock;
  if (!std::holds_alternative<disk_state::Consistent>(sb.disk)) return {};
  std::uint64_t compared = 0;
  AlignedBuffer block(block_size);
  for (std::uint64_t lba : Sampler(log).run()) {
    if (!data.read(log.home_map.at(Lba{lba}).bytes(), block.span()))
      continue;  // a bad sector does not identify the disk
    if (log.digests.fits(Lba{lba}, block.span().data())) return {};
    compared++;
  }
  if (compared < compared_min) return {};
  return fail(
      Errc::conflict,
      "{}: none of {} blocks has the content that volume {} wrote: this is not the volume's data area. "
      "Another disk may have this name now: correct `data`. Nothing was changed",
      data.name(), compared, sb.volume.text());
}

}  // namespace twinloft::repl::journal
