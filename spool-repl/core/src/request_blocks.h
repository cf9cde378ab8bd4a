// Which blocks a client's request covers, whole or in part.
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

// Tokens of a request's reads: wide enough that no request needs more than 10 bits of part number.
constexpr unsigned run_bits = 10;

}  // namespace twinloft::repl::core
