// A set of blocks as ranges, so that half of the volume costs as little as one block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace twinloft::repl::journal {

class BlockSet {
 public:
  // Adds a range and calls `on_new(lba, blocks)` for each part of it that was not in the set, in ascending
  // order.
  template <class OnNew>
  void add(std::uint64_t lba, std::uint64_t blocks, OnNew on_new) {
    std::uint64_t begin = lba, end = lba + blocks, at = lba;
    auto it = ranges_.upper_bound(lba);
    if (it != ranges_.begin() && std::prev(it)->second >= lba) --it;
    while (it != ranges_.end() && it->first <= end) {
      if (it->first > at) on_new(at, it->first - at);
      at = std::max(at, std::min(it->second, end));
      begin = std::min(begin, it->first);
      end = std::max(end, it->second);
      it = ranges_.erase(it);
    }
    if (at < lba + blocks) on_new(at, lba + blocks - at);
    ranges_.emplace(begin, end);
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // begin -> end, disjoint, not touching
};

}  // namespace twinloft::repl::journal
