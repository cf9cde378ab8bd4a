// Bytes that wait until a stream accepts them, in pieces. Its memory is that of the waiting bytes, and two
// pieces more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "twinloft/base/bytes.h"

namespace twinloft {

class Backlog {
 public:
  std::size_t bytes() const { return bytes_; }

  void append(ByteSpan more) {
    bytes_ += more.size();
    while (!more.empty()) {
      if (pieces_.empty() || pieces_.back().size() == piece_bytes)
        pieces_.emplace_back().reserve(piece_bytes);
      std::vector<std::byte>& piece = pieces_.back();
      ByteSpan part = more.first(std::min(more.size(), piece_bytes - piece.size()));
      piece.insert(piece.end(), part.begin(), part.end());
      more = more.subspan(part.size());
    }
  }

  // At most bytes().
  void drop(std::size_t count) {
    bytes_ -= count;
    begin_ += count;
    for (; !pieces_.empty() && begin_ >= pieces_.front().size(); pieces_.pop_front())
      begin_ -= pieces_.front().size();
  }

  void clear() { drop(bytes_); }

  void for_each(auto&& what) const { for_range(0, bytes_, what); }

  // Of `count` bytes behind the first `from`. At most bytes().
  void for_range(std::size_t from, std::size_t count, auto&& what) const {
    // All pieces but the last are full.
    std::size_t skip = begin_ + from;
    for (std::size_t i = skip / piece_bytes; count > 0; ++i) {
      ByteSpan part = ByteSpan(pieces_[i]).subspan(std::exchange(skip, 0) % piece_bytes);
      part = part.first(std::min(count, part.size()));
      count -= part.size();
      what(part);
    }
  }

 private:
  static constexpr std::size_t piece_bytes = 256u << 10;
  std::deque<std::vector<std::byte>> pieces_;
  std::size_t begin_ = 0, bytes_ = 0;  // begin_: in the first piece
};

}  // namespace twinloft
