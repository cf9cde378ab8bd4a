// The input of a link that has several paths, without I/O: chunks in any order, and some twice, become the
// bytes in order.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::chunks {

class ChunkInput {
 public:
  // window: how far chunks may be ahead of what the owner has read.
  explicit ChunkInput(std::size_t window) : window_(window) {}

  // A chunk, or a part of it. Errors: Errc::corrupt (more than the window allows, or too many small ones).
  Status add(std::uint64_t position, ByteSpan bytes);
  // The link's output ends there. Bytes before it may still be on their way.
  void end_at(std::uint64_t position) { end_ = position; }
  std::size_t read(std::span<const iovec> into);
  bool has_bytes() const { return !pieces_.empty() && pieces_.begin()->first <= taken_; }
  bool is_ending() const { return end_.has_value(); }
  bool is_at_end() const { return end_ && taken_ >= *end_; }
  std::uint64_t taken() const { return taken_; }  // the position up to which the owner has read

 private:
  void drop_taken();
  Status store(std::uint64_t position, ByteSpan bytes);

  std::size_t window_;
  std::map<std::uint64_t, std::vector<std::byte>> pieces_;  // by position. They do not overlap
  std::uint64_t taken_ = 0;
  std::optional<std::uint64_t> end_;
};

}  // namespace twinloft::repl::chunks
