#include "twinloft/spool-repl/chunks/chunk_output.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::repl::chunks {

std::size_t ChunkOutput::accept(std::span<const iovec> from, std::size_t skip) {
  std::size_t accepted = 0;
  for (const iovec& v : from) {
    ByteSpan part(static_cast<const std::byte*>(v.iov_base), v.iov_len);
    std::size_t skipped = std::min(skip, part.size());
    skip -= skipped;
    part = part.subspan(skipped);
    std::size_t count = std::min(part.size(), room());
    kept_.append(part.first(count));
    accepted += count;
    if (count < part.size()) break;
  }
  return accepted;
}

ChunkOutput::Chunk ChunkOutput::next(unsigned path, std::uint32_t bytes_max) {
  TL_CHECK(has_next());
  Chunk chunk;
  if (!again_.empty()) {
    chunk = {again_.begin()->first, again_.begin()->second};
    again_.erase(again_.begin());
  } else {
    chunk = {next_, static_cast<std::uint32_t>(std::min<std::uint64_t>(end() - next_, bytes_max))};
    next_ += chunk.bytes;
  }
  sent_[chunk.position] = {chunk.bytes, path, false};
  return chunk;
}

void ChunkOutput::finished(const Chunk& chunk) {
  sent_.at(chunk.position).is_written = true;
  drop_taken();
}

void ChunkOutput::lost(unsigned path) {
  for (auto it = sent_.begin(); it != sent_.end();) {
    if (it->second.path != path) {
      ++it;
      continue;
    }
    if (it->first + it->second.bytes > taken_) again_[it->first] = it->second.bytes;
    it = sent_.erase(it);
  }
  drop_taken();
}

Status ChunkOutput::taken(std::uint64_t position) {
  if (position > next_)
    return fail(Errc::corrupt, "the other side has {} bytes, of which {} were sent", position, next_);
  if (position <= taken_) return {};  // older news, by a slower path
  taken_ = position;
  drop_taken();
  return {};
}

// A chunk that is being written keeps its bytes, also if a copy of it has arrived over a lost path.
void ChunkOutput::drop_taken() {
  while (!sent_.empty() && sent_.begin()->second.is_written &&
         sent_.begin()->first + sent_.begin()->second.bytes <= taken_)
    sent_.erase(sent_.begin());
  while (!again_.empty() && again_.begin()->first + again_.begin()->second <= taken_)
    again_.erase(again_.begin());
  std::uint64_t first = next_;
  if (!sent_.empty()) first = std::min(first, sent_.begin()->first);
  if (!again_.empty()) first = std::min(first, again_.begin()->first);
  kept_.drop(static_cast<std::size_t>(first - base_));
  base_ = first;
}

}  // namespace twinloft::repl::chunks
