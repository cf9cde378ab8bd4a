// A file or block device with synchronous access, for `create`, recovery and the offline tools: before and
// after the event loop runs. The simulator has its own implementation.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::ports {

class BlockFile {
 public:
  virtual ~BlockFile() = default;
  virtual std::uint64_t size_bytes() const = 0;
  virtual std::string name() const = 0;  // for messages
  // Offsets and lengths are multiples of 4096; the memory is aligned to 4096.
  virtual Status read(std::uint64_t offset, MutableByteSpan out) = 0;
  virtual Status write(std::uint64_t offset, ByteSpan data) = 0;
  virtual Status write_zeros(std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual Status sync() = 0;  // everything written before is durable

  // Transfers several pieces, in any order and possibly in parallel. After an error, any of the other pieces
  // may have been transferred. By default, one piece after the other.
  struct Piece {
    std::uint64_t offset;
    MutableByteSpan memory;  // write_all() does not change it
  };
  virtual Status read_all(std::span<const Piece> pieces) {
    for (const Piece& p : pieces) TL_TRY(read(p.offset, p.memory));
    return {};
  }
  virtual Status write_all(std::span<const Piece> pieces) {
    for (const Piece& p : pieces) TL_TRY(write(p.offset, p.memory));
    return {};
  }
};

}  // namespace twinloft::repl::ports
