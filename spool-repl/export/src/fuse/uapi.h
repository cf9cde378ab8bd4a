// What fuse(4) over io_uring needs beyond the installed kernel headers. Source: include/uapi/linux/fuse.h of
// Linux 6.14 (FUSE 7.42), and Documentation/filesystems/fuse/fuse-io-uring.rst. linux/fuse.h has the rest.
//
// For each possible processor there is a queue of entries. An entry is a header and a payload buffer, which
// REGISTER gives to the kernel. A completed command means that the kernel has put a request into the entry.
// COMMIT_AND_FETCH gives the reply, and with it the entry, back.
#pragma once

#include <linux/fuse.h>

#include <cstdint>

namespace twinloft::repl::fuse::uapi {

inline constexpr std::uint64_t over_io_uring = 1ull << 41;  // FUSE_OVER_IO_URING, of flags and flags2
                                                            // together
inline constexpr std::uint32_t minor_with_ring = 42;

enum RingCommand : std::uint32_t {
  command_register = 1,          // FUSE_IO_URING_CMD_REGISTER
  command_commit_and_fetch = 2,  // FUSE_IO_URING_CMD_COMMIT_AND_FETCH
};

// struct fuse_uring_ent_in_out
struct EntryInOut {
  std::uint64_t flags;
  std::uint64_t commit_id;   // set by the kernel; the commit repeats it
  std::uint32_t payload_sz;  // bytes of the payload: of the request, then of the reply
  std::uint32_t padding;
  std::uint64_t reserved;
};
static_assert(sizeof(EntryInOut) == 32);

// struct fuse_uring_req_header
struct RequestHeader {
  alignas(8) std::byte in_out[128];  // struct fuse_in_header, then struct fuse_out_header
  alignas(8) std::byte op_in[128];   // the operation's first structure
  EntryInOut entry;
};
static_assert(sizeof(RequestHeader) == 288);

// struct fuse_uring_cmd_req, in the 80 bytes of a large entry of io_uring
struct CommandArea {
  std::uint64_t flags;
  std::uint64_t commit_id;
  std::uint16_t qid;
  std::uint8_t padding[6];
};
static_assert(sizeof(CommandArea) == 24);

}  // namespace twinloft::repl::fuse::uapi
