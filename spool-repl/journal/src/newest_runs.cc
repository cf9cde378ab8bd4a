#include "newest_runs.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_set.hpp>

namespace twinloft::repl::journal {

namespace {

// From the newest record to the oldest, and backwards within each record, so that the newest content comes
// first.
class Claims {
 public:
  explicit Claims(const RecoveredLog& log) : log_(log) {}

  std::vector<Run> run() {
    for (std::size_t i = log_.records.size(); i > 0; --i)
      if (log_.records[i - 1].body.mark().lsn <= log_.commit) claim(i - 1);
    std::reverse(runs_.begin(), runs_.end());
    return std::move(runs_);
  }

 private:
  void claim(std::size_t record) {
    const StoredRecord& r = log_.records[record];
    const Superblock& sb = log_.superblock;
    std::uint64_t at = sb.ring_offset + r.pos.v % sb.ring_bytes +
                       std::uint64_t{meta_blocks_for(r.meta_bytes)} * block_size;
    std::uint64_t payload = r.body.header.payload_blocks;
    for (std::size_t i = r.body.extents.size(); i > 0; --i) {
      const Extent& e = r.body.extents[i - 1];
      if (e.kind == ExtentKind::zeros) {
        runs_.push_back({e.lba.v, e.blocks, 0, 0, record, true});
        continue;
      }
      payload -= e.blocks;
      for (std::uint32_t b = e.blocks; b > 0; --b) claim_block(e.lba.v + b - 1, at, payload + b - 1, record);
    }
  }

  void claim_block(std::uint64_t lba, std::uint64_t at, std::uint64_t payload, std::size_t record) {
    if (!seen_.insert(lba).second) return;
    std::uint64_t offset = at + payload * block_size;
    bool joins = !runs_.empty() && !runs_.back().zeros && runs_.back().record == record &&
                 runs_.back().lba == lba + 1 && runs_.back().payload == payload + 1;
    if (!joins) return runs_.push_back({lba, 1, offset, payload, record, false});
    runs_.back().lba--;
    runs_.back().payload--;
    runs_.back().offset = offset;
    runs_.back().blocks++;
  }

  const RecoveredLog& log_;
  boost::unordered_flat_set<std::uint64_t> seen_;
  std::vector<Run> runs_;
};

}  // namespace

std::vector<Run> newest_runs(const RecoveredLog& log) {
  return Claims(log).run();
}

}  // namespace twinloft::repl::journal
