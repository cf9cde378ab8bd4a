#include "twinloft/spool-repl/chunks/chunk_input.h"

#include <algorithm>
#include <iterator>

namespace twinloft::repl::chunks {

namespace {
constexpr std::size_t piece_bytes = 64u << 10;
}

Status ChunkInput::add(std::uint64_t position, ByteSpan bytes) {
  std::uint64_t end = position + bytes.size();
  if (end <= taken_) return {};  // sent again, and it had arrived
  if (end - taken_ > window_)
    return fail(Errc::corrupt, "bytes up to {}, when only {} were taken", end, taken_);
  // The parts of a chunk, as they come, become few pieces.
  auto after = pieces_.upper_bound(position);
  if (after != pieces_.begin()) {
    auto& [begin, piece] = *std::prev(after);
    if (begin + piece.size() == position && piece.size() < piece_bytes) {
      stored_ += bytes.size();
      piece.insert(piece.end(), bytes.begin(), bytes.end());
      return check_memory();
    }
  }
  auto [at, is_new] = pieces_.try_emplace(position);
  if (!is_new && at->second.size() >= bytes.size()) return {};
  stored_ += bytes.size() - at->second.size();
  at->second.assign(bytes.begin(), bytes.end());
  return check_memory();
}

Status ChunkInput::check_memory() const {
  return stored_ > 2 * window_ ? fail(Errc::corrupt, "chunks that overlap") : Status();
}

std::size_t ChunkInput::read(std::span<const iovec> into) {
  std::size_t given = 0;
  for (const iovec& v : into) {
    for (std::size_t filled = 0; filled < v.iov_len && has_bytes();) {
      ByteSpan piece = ByteSpan(pieces_.begin()->second).subspan(taken_ - pieces_.begin()->first);
      std::size_t count = std::min(piece.size(), v.iov_len - filled);
      std::copy_n(piece.begin(), count, static_cast<std::byte*>(v.iov_base) + filled);
      filled += count;
      given += count;
      taken_ += count;
      drop_taken();
    }
  }
  return given;
}

// Also pieces that others have covered.
void ChunkInput::drop_taken() {
  while (!pieces_.empty() && pieces_.begin()->first + pieces_.begin()->second.size() <= taken_) {
    stored_ -= pieces_.begin()->second.size();
    pieces_.erase(pieces_.begin());
  }
}

}  // namespace twinloft::repl::chunks
