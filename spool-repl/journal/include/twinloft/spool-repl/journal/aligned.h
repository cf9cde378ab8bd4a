// Memory for O_DIRECT (open(2)): zeroed, and aligned to block_size.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>

#include "twinloft/base/bytes.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::journal {

class AlignedBuffer {
 public:
  // bytes: a multiple of block_size. Throws std::bad_alloc.
  explicit AlignedBuffer(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(std::aligned_alloc(block_size, bytes))) {
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, bytes);
  }
  MutableByteSpan span() { return {data_.get(), bytes_}; }
  ByteSpan span() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace twinloft::repl::journal
