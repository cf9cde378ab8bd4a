// A volume as a block device with a volatile write cache: the interface of the front ends (export/).
//
// All calls are on the volume's owner thread. The target allocates no memory for a request, and a front end
// allocates its requests in advance.
#pragma once

#include <cstddef>
#include <cstdint>

namespace twinloft::repl::ports {

enum class IoOp : std::uint8_t {
  read,          // fills `data`
  write,         // done once `data` is in memory and ordered; with `fua`, once it is durable as after a flush
  flush,         // done once every request that was done before its submission is durable, as of the protocol
  trim,          // the range reads as zeros afterwards
  write_zeroes,  // as trim; with `fua` as for write
};

// A request, owned by the front end. The request and `data` stay valid and unchanged until `done` is called.
// The target calls `done` exactly once, possibly before submit() returns. Requests may complete in any order.
struct IoRequest {
  IoOp op = IoOp::read;
  bool fua = false;
  std::uint64_t offset = 0;   // bytes, of any alignment. The front end checks offset + length <= size_bytes()
  std::uint32_t length = 0;   // bytes; at most io_max_length for read and write
  std::byte* data = nullptr;  // `length` bytes, for read and write
  int error = 0;              // errno, set before `done`; 0: success
  void (*done)(IoRequest&) = nullptr;
  void* owner = nullptr;      // for the front end
  IoRequest* next = nullptr;  // for the target, until `done`
  std::uint64_t tag = 0;      // for the target, until `done`
};

// Bytes of a read or write. Front ends split or refuse longer requests.
inline constexpr std::uint32_t io_max_length = 1u << 20;

class BlockTarget {
 public:
  virtual ~BlockTarget() = default;
  virtual std::uint64_t size_bytes() const = 0;  // a multiple of 4096
  virtual void submit(IoRequest& request) = 0;
};

}  // namespace twinloft::repl::ports
