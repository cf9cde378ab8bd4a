// The operations of the only file, as bytes of the FUSE protocol. Pure: the volume's size and state come as
// arguments. The answers equal those of operations.cc, which libfuse encodes.
#pragma once

#include <linux/fuse.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string_view>

#include "twinloft/spool-repl/ports/block_target.h"

namespace twinloft::repl::fuse {

// What the mounted file is.
struct FileFacts {
  std::uint64_t size_bytes = 0;
  struct stat underlying{};     // of the mount point's own file: owner and times
  std::uint32_t max_bytes = 0;  // of a read or write
  bool write_lost = false;      // a write has failed: no flush succeeds any more
};

// A request without its header.
struct RequestBody {
  std::uint32_t opcode = 0;
  std::span<const std::byte> arguments;  // the operation's first structure, and possibly more behind it
  std::size_t payload_bytes = 0;         // of the data that a write carries
};

// What a request needs.
struct Decision {
  enum class Kind : std::uint8_t {
    answer,   // with `error`, or with `reply_bytes` of the reply
    target,   // a request to the volume
    silence,  // the kernel expects no answer
  };
  Kind kind = Kind::answer;
  int error = 0;  // errno, positive
  std::size_t reply_bytes = 0;
  ports::IoOp op = ports::IoOp::read;
  bool fua = false;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint64_t range_left = 0;  // the rest of a trim or zero range, after `length`
  bool released = false;         // a user has closed the file
};

inline constexpr std::size_t reply_bytes_max = 128;  // of the reply to anything but a read
inline constexpr std::uint32_t range_piece_bytes = 1u << 30;

// Writes a reply without data into `reply`, of at least reply_bytes_max bytes. It may overlap the request.
Decision decide(const FileFacts& file, const RequestBody& request, std::span<std::byte> reply);

// The reply of a successful write.
std::size_t encode_written(std::uint32_t bytes, std::span<std::byte> reply);

struct InitWish {
  std::uint32_t max_bytes = 0;  // of a read or write
  unsigned max_background = 0;
};
// The reply to FUSE_INIT. Errors: EPROTO (no such request, or a kernel without the ring), EOPNOTSUPP (the
// ring is switched off).
std::expected<fuse_init_out, int> answer_init(std::span<const std::byte> arguments, const InitWish& wish);

// How many numbers a list such as "0-3,8" has: the kernel's lists of processors. 0: not a list.
unsigned numbers_in_list(std::string_view list);

}  // namespace twinloft::repl::fuse
