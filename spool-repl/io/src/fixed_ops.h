// Operations that the headers of Debian 12 lack. Source: include/uapi/linux/io_uring.h of Linux 6.15, enum
// io_uring_op.
#pragma once

#include <cstdint>

namespace twinloft::repl::io {

inline constexpr std::uint8_t op_readv_fixed = 60;   // IORING_OP_READV_FIXED
inline constexpr std::uint8_t op_writev_fixed = 61;  // IORING_OP_WRITEV_FIXED

}  // namespace twinloft::repl::io
