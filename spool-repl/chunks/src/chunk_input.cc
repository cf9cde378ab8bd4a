#include "twinloft/spool-repl/chunks/chunk_input.h"

#include <algorithm>
#include <iterator>

namespace twinloft::repl::chunks {

namespace {
constexpr std::size_t piece_bytes = 64u << 10;
constexpr std::size_t window_per_piece = 64;  // bounds what many small pieces take beside their content
}  // namespace

// Only what has not arrived yet is stored, so the pieces do not overlap.
Status ChunkInput::add(std::uint64_t position, ByteSpan bytes) {
  std::uint64_t end = position + bytes.size();
  if (end > taken_ && end - taken_ > window_)
    return fail(Errc::corrupt, "bytes up to {}, when only {} were taken", end, taken_);
  position = std::max(position, taken_);
  while (position < end) {
    auto after = pieces_.upper_bound(position);
    if (after != pieces_.begin()) {
      const auto& [begin, piece] = *std::prev(after);
      std::uint64_t covered = begin + piece.size();
      position = std::max(position, std::min(covered, end));
      if (position == end) break;
      after = pieces_.upper_bound(position);
    }
    std::uint64_t gap_end = after == pieces_.end() ? end : std::min(end, after->first);
    auto count = static_cast<std::size_t>(gap_end - position);
    TL_TRY(store(position, bytes.last(static_cast<std::size_t>(end - position)).first(count)));
    position = gap_end;
  }
  return {};
}

// The parts of a chunk, as they come, become few pieces.
Status ChunkInput::store(std::uint64_t position, ByteSpan bytes) {
  auto after = pieces_.upper_bound(position);
  if (after != pieces_.begin()) {
    auto& [begin, piece] = *std::prev(after);
    if (begin + piece.size() == position && piece.size() < piece_bytes) {
      piece.insert(piece.end(), bytes.begin(), bytes.end());
      return {};
    }
  }
  if (pieces_.size() * window_per_piece > window_) return fail(Errc::corrupt, "too many small chunks");
  pieces_.emplace_hint(after, position, std::vector<std::byte>(bytes.begin(), bytes.end()));
  return {};
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

void ChunkInput::drop_taken() {
  if (pieces_.begin()->first + pieces_.begin()->second.size() <= taken_) pieces_.erase(pieces_.begin());
}

}  // namespace twinloft::repl::chunks
