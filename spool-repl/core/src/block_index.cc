#include "twinloft/spool-repl/core/block_index.h"

#include <algorithm>
#include <iterator>

namespace twinloft::repl::core {

// Each entry holds a slot of the arena. So with this reservation, the table never grows on the write path.
BlockIndex::BlockIndex(Arena& arena) : arena_(arena) {
  data_.reserve(arena.size());
}

BlockIndex::ZeroMap::const_iterator BlockIndex::first_overlap(std::uint64_t begin) const {
  auto it = zeros_.upper_bound(begin);
  if (it != zeros_.begin()) {
    auto before = std::prev(it);
    if (before->second.end > begin) return before;
  }
  return it;
}

BlockIndex::Found BlockIndex::find(Lba lba) const {
  if (auto it = data_.find(lba.v); it != data_.end()) return {Kind::data, it->second.slot, it->second.serial};
  if (auto it = first_overlap(lba.v); it != zeros_.end() && it->first <= lba.v)
    return {Kind::zeros, 0, it->second.serial};
  return {};
}

void BlockIndex::carve_zeros(std::uint64_t begin, std::uint64_t end) {
  auto found = first_overlap(begin);
  while (found != zeros_.end() && found->first < end) {
    auto [start, zero] = *found;
    found = zeros_.erase(found);
    if (start < begin) zeros_.emplace(start, Zero{begin, zero.serial});
    if (zero.end > end) {
      zeros_.emplace(end, zero);
      return;
    }
  }
}

bool BlockIndex::touched(Lba lba) const {
  auto it = watched_.find(lba.v);
  return it != watched_.end() && it->second;
}

void BlockIndex::touch(std::uint64_t begin, std::uint64_t end) {
  for (auto it = watched_.lower_bound(begin); it != watched_.end() && it->first < end; ++it)
    it->second = true;
}

void BlockIndex::put_data(Lba lba, Slot slot, std::uint64_t serial) {
  arena_.ref(slot);
  if (!watched_.empty()) touch(lba.v, lba.v + 1);
  if (!zeros_.empty()) carve_zeros(lba.v, lba.v + 1);
  auto [it, inserted] = data_.try_emplace(lba.v, DataEntry{slot, serial});
  if (!inserted) {
    arena_.unref(it->second.slot);
    it->second = {slot, serial};
  }
}

void BlockIndex::put_zeros(Lba lba, std::uint64_t blocks, std::uint64_t serial) {
  std::uint64_t end = lba.v + blocks;
  if (!watched_.empty()) touch(lba.v, end);
  // A trim may span the whole volume, so the smaller of range and table is walked.
  if (blocks < data_.size()) {
    for (std::uint64_t b = lba.v; b < end; ++b)
      if (auto it = data_.find(b); it != data_.end()) {
        arena_.unref(it->second.slot);
        data_.erase(it);
      }
  } else if (!data_.empty()) {  // the table may be large and empty
    boost::unordered::erase_if(data_, [&](const auto& entry) {
      bool inside = entry.first >= lba.v && entry.first < end;
      if (inside) arena_.unref(entry.second.slot);
      return inside;
    });
  }
  carve_zeros(lba.v, end);
  zeros_.emplace(lba.v, Zero{end, serial});
}

void BlockIndex::erase_data_if(Lba lba, std::uint64_t serial) {
  auto it = data_.find(lba.v);
  if (it == data_.end() || it->second.serial != serial) return;
  arena_.unref(it->second.slot);
  data_.erase(it);
}

void BlockIndex::erase_zeros_if(Lba lba, std::uint64_t blocks, std::uint64_t serial) {
  std::vector<ZeroExtent> overlaps;
  zeros_within(lba, blocks, overlaps);
  for (const ZeroExtent& z : overlaps)
    if (z.serial == serial) carve_zeros(z.lba.v, z.lba.v + z.blocks);
}

void BlockIndex::zeros_within(Lba lba, std::uint64_t blocks, std::vector<ZeroExtent>& out) const {
  std::uint64_t end = lba.v + blocks;
  for (auto it = first_overlap(lba.v); it != zeros_.end() && it->first < end; ++it) {
    std::uint64_t from = std::max(it->first, lba.v), to = std::min(it->second.end, end);
    out.push_back({Lba{from}, to - from, it->second.serial});
  }
}

void BlockIndex::clear() {
  touch(0, UINT64_MAX);
  for (const auto& [lba, entry] : data_) arena_.unref(entry.slot);
  data_.clear();
  zeros_.clear();
}

}  // namespace twinloft::repl::core
