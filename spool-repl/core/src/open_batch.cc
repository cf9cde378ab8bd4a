#include "open_batch.h"

#include <algorithm>

namespace twinloft::repl::core {

namespace {

// Merges overlapping ranges, so that each zero extent is found once.
std::vector<BlockIndex::ZeroExtent> merged(std::vector<BlockIndex::ZeroExtent> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.lba < b.lba; });
  std::vector<BlockIndex::ZeroExtent> out;
  for (const auto& r : ranges) {
    if (!out.empty() && r.lba.v <= out.back().lba.v + out.back().blocks) {
      std::uint64_t end = std::max(out.back().lba.v + out.back().blocks, r.lba.v + r.blocks);
      out.back().blocks = end - out.back().lba.v;
    } else {
      out.push_back(r);
    }
  }
  return out;
}

}  // namespace

SealedBatch OpenBatch::seal(const BlockIndex& pending, std::uint64_t serial, Arena& arena) {
  SealedBatch batch;
  std::vector<std::pair<Extent, Slot>> parts;
  // An address that was written, zeroed and written again within the batch occurs twice.
  std::sort(blocks_.begin(), blocks_.end());
  blocks_.erase(std::unique(blocks_.begin(), blocks_.end()), blocks_.end());
  for (std::uint64_t lba : blocks_) {
    auto found = pending.find(Lba{lba});
    if (found.kind == BlockIndex::Kind::data && found.serial == serial)
      parts.push_back({{Lba{lba}, 1, ExtentKind::data}, found.slot});
  }
  std::vector<BlockIndex::ZeroExtent> zeros;
  for (const auto& range : merged(std::move(zeros_))) pending.zeros_within(range.lba, range.blocks, zeros);
  for (const auto& z : zeros)
    if (z.serial == serial)
      parts.push_back({{z.lba, static_cast<std::uint32_t>(z.blocks), ExtentKind::zeros}, 0});
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.first.lba < b.first.lba; });

  for (const auto& [extent, slot] : parts) {
    bool data = extent.kind == ExtentKind::data;
    if (data) {
      arena.ref(slot);
      batch.payload.push_back(slot);
    }
    if (data && !batch.extents.empty() && batch.extents.back().kind == ExtentKind::data &&
        batch.extents.back().lba + batch.extents.back().blocks == extent.lba)
      batch.extents.back().blocks++;
    else
      batch.extents.push_back(extent);
  }
  blocks_.clear();
  zeros_.clear();
  return batch;
}

}  // namespace twinloft::repl::core
