// The blocks that a client's request covers, wholly or in part.
#pragma once

#include <algorithm>

#include "volume.h"

namespace twinloft::repl::core {

inline std::uint64_t first_block(const ClientRequest& r) {
  return r.offset / block_size;
}
inline std::uint64_t end_block(const ClientRequest& r) {
  return (r.offset + r.length + block_size - 1) / block_size;
}
inline bool is_zeroing(const ClientRequest& r) {
  return r.op == ClientOp::trim || r.op == ClientOp::write_zeroes;
}

// The part of a block that the request covers.
struct Part {
  std::uint32_t from, bytes;
  bool whole() const { return bytes == block_size; }
};
inline Part part_of(const ClientRequest& r, std::uint64_t block) {
  std::uint64_t begin = std::max(r.offset, block * block_size);
  std::uint64_t end = std::min(r.offset + r.length, (block + 1) * block_size);
  return {static_cast<std::uint32_t>(begin - block * block_size), static_cast<std::uint32_t>(end - begin)};
}

// Bits of a token for the number of a read within its request. No request needs more than 2^10 reads.
constexpr unsigned run_bits = 10;

}  // namespace twinloft::repl::core
