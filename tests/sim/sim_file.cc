#include "sim_file.h"

#include "twinloft/base/check.h"

namespace twinloft::repl::sim {

SimFile::SimFile(std::string name, std::uint64_t bytes) : name_(std::move(name)), now_(bytes), media_(bytes) {}

Status SimFile::read(std::uint64_t offset, MutableByteSpan out) {
  TL_CHECK(offset + out.size() <= now_.size());
  std::memcpy(out.data(), now_.data() + offset, out.size());
  return {};
}

Status SimFile::write(std::uint64_t offset, ByteSpan data) {
  TL_CHECK(offset + data.size() <= now_.size());
  std::memcpy(now_.data() + offset, data.data(), data.size());
  cache_.push_back({next_write_++, offset, {data.begin(), data.end()}});
  return {};
}

Status SimFile::write_zeros(std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> zeros(bytes);
  return write(offset, zeros);
}

Status SimFile::sync() {
  sync_upto(last_write());
  return {};
}

void SimFile::sync_upto(std::uint64_t write) {
  while (!cache_.empty() && cache_.front().number <= write) {
    const Unsynced& u = cache_.front();
    std::memcpy(media_.data() + u.offset, u.data.data(), u.data.size());
    cache_.pop_front();
  }
}

void SimFile::write_durable(std::uint64_t offset, ByteSpan data) {
  TL_CHECK(offset + data.size() <= now_.size());
  std::memcpy(now_.data() + offset, data.data(), data.size());
  std::memcpy(media_.data() + offset, data.data(), data.size());
}

void SimFile::tear(std::uint64_t offset, ByteSpan data, SeededRandom& random) {
  // All, nothing, a beginning, or any mixture: the disk may write sectors in any order.
  std::uint64_t kind = random.below(4);
  std::size_t sectors = data.size() / 512, upto = random.below(sectors + 1);
  for (std::size_t s = 0; s < sectors; ++s) {
    bool keep = kind == 0 || (kind == 2 && s < upto) || (kind == 3 && random.below(2) == 0);
    if (keep) write_durable(offset + s * 512, data.subspan(s * 512, 512));
  }
}

void SimFile::power_cut(SeededRandom& random) {
  std::deque<Unsynced> cache = std::move(cache_);
  cache_.clear();
  for (const Unsynced& u : cache) tear(u.offset, u.data, random);
  now_ = media_;
}

}  // namespace twinloft::repl::sim
