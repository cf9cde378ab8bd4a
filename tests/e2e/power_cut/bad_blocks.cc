#include "bad_blocks.h"

#include <fstream>
#include <vector>

namespace twinloft::power {

namespace {
constexpr std::uint64_t block_bytes = 4096;

// Replaced as a whole: a concurrent reader of the list finds the old or the new list.
void replace(const std::filesystem::path& list, const std::vector<std::string>& lines) {
  std::filesystem::path next = list;
  next += ".new";
  {
    std::ofstream out(next);
    for (const std::string& line : lines) out << line << '\n';
  }
  std::filesystem::rename(next, list);
}
}  // namespace

void BadBlocks::load() {
  blocks_.clear();
  if (list_.empty()) return;
  std::ifstream in(list_);
  std::string name;
  for (std::uint64_t block; in >> name >> block;) blocks_.emplace(name, block);
}

void BadBlocks::store() const {
  std::vector<std::string> lines;
  for (const auto& [name, block] : blocks_) lines.push_back(name + ' ' + std::to_string(block));
  replace(list_, lines);
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

bool BadWrites::take(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  if (list_.empty()) return false;
  std::ifstream in(list_);
  std::vector<std::string> left;
  bool hit = false;
  std::string of;
  for (std::uint64_t first, last; in >> of >> first >> last;) {
    bool this_one = !hit && of == name && first * block_bytes < offset + bytes &&
                    offset < (last + 1) * block_bytes;
    hit = hit || this_one;
    if (!this_one) left.push_back(of + ' ' + std::to_string(first) + ' ' + std::to_string(last));
  }
  if (hit) replace(list_, left);
  return hit;
}

}  // namespace twinloft::power
