// Input that a session has received and not yet processed. Processed bytes stay in place until the next
// event, because body bytes are passed on as spans into this buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "twinloft/base/bytes.h"

namespace twinloft::lmtpd {

class KeptInput {
 public:
  ByteSpan rest() const { return ByteSpan(bytes_).subspan(begin_); }
  std::size_t size() const { return bytes_.size() - begin_; }
  bool empty() const { return size() == 0; }
  std::size_t memory() const { return bytes_.capacity(); }  // bytes held, used or not

  // Replaces the content.
  void assign(ByteSpan bytes) {
    bytes_.assign(bytes.begin(), bytes.end());
    begin_ = 0;
  }
  // Invalidates all spans. Removes processed bytes first, so that the buffer grows less.
  void append(ByteSpan bytes) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // Marks all but the last `left` bytes as processed.
  void leave(std::size_t left) { begin_ = bytes_.size() - std::min(left, size()); }
  // Invalidates all spans. Frees a large buffer, so a burst does not hold memory until the connection
  // ends.
  void forget() {
    bytes_.clear();
    begin_ = 0;
    if (bytes_.capacity() > memory_max) std::vector<std::byte>().swap(bytes_);
  }

 private:
  static constexpr std::size_t memory_max = 4 * 1024;  // bytes held while the buffer is empty

  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;  // of the unprocessed bytes
};

}  // namespace twinloft::lmtpd
