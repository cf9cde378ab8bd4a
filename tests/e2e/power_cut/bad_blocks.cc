#include "bad_blocks.h"

#include <fstream>

namespace twinloft::power {

namespace {
constexpr std::uint64_t block_bytes = 4096;
}

void BadBlocks::load() {
  blocks_.clear();
  if (list_.empty()) return;
  std::ifstream in(list_);
  std::string name;
  for (std::uint64_t block; in >> name >> block;) blocks_.emplace(name, block);
}

void BadBlocks::store() const {
  std::filesystem::path next = list_;
  next += ".new";
  {
    std::ofstream out(next);
    for (const auto& [name, block] : blocks_) out << name << ' ' << block << '\n';
  }
  std::filesystem::rename(next, list_);
}

bool BadBlocks::hit(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  load();
  auto at = blocks_.lower_bound({name, offset / block_bytes});
  return at != blocks_.end() && at->first == name && at->second * block_bytes < offset + bytes;
}

void BadBlocks::written(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  load();
  std::uint64_t first = (offset + block_bytes - 1) / block_bytes, end = (offset + bytes) / block_bytes;
  auto from = blocks_.lower_bound({name, first}), to = blocks_.lower_bound({name, std::max(first, end)});
  if (from == to) return;
  blocks_.erase(from, to);
  store();
}

}  // namespace twinloft::power
