// Input that a session has and has not looked at yet. What is looked at stays where it is until the next
// event, since the bytes of a message are passed on as spans into it.
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

  // Instead of what there was.
  void assign(ByteSpan bytes) {
    bytes_.assign(bytes.begin(), bytes.end());
    begin_ = 0;
  }
  // Ends every span into it. It is compacted before it grows: what was looked at is of no more use.
  void append(ByteSpan bytes) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // All but the last `left` bytes were looked at.
  void leave(std::size_t left) { begin_ = bytes_.size() - std::min(left, size()); }
  // Ends every span into it. One burst must not cost its memory for as long as the connection lives.
  void forget() {
    bytes_.clear();
    begin_ = 0;
    if (bytes_.capacity() > memory_max) std::vector<std::byte>().swap(bytes_);
  }

 private:
  static constexpr std::size_t memory_max = 4 * 1024;  // that is held while nothing is kept

  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;  // of what was not looked at
};

}  // namespace twinloft::lmtpd
