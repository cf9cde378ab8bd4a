// What a front end (export/) drives: a volume as a block device with a volatile write cache.
//
// Everything here happens on the volume's owner thread. Nothing is allocated per request by the target; a
// front end preallocates its requests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace twinloft::repl::ports {

enum class IoOp : std::uint8_t {
  read,          // fills `data`
  write,         // takes `data`; done once in memory and ordered (with `fua`: once durable, as after a flush)
  flush,         // done once every request completed before its submission is durable as the protocol says
  trim,          // the range reads back as zeros afterwards
  write_zeroes,  // the same, with `fua` as for write
};

// One request. The front end owns it and keeps it and `data` alive and unchanged until `done` is called; the
// target calls `done` exactly once, possibly before submit() returns. Requests may complete in any order.
struct IoRequest {
  IoOp op = IoOp::read;
  bool fua = false;
  std::uint64_t offset = 0;   // bytes; any alignment; offset + length <= size_bytes(), checked by the front
                              // end
  std::uint32_t length = 0;   // bytes; of `data` for read and write; at most max_length for them, any for the
                              // others
  std::byte* data = nullptr;  // read from for write, written to for read
  int error = 0;              // errno of the outcome, set before `done`; 0: success
  void (*done)(IoRequest&) = nullptr;
  void* owner = nullptr;      // the front end's own
  IoRequest* next = nullptr;  // the target's, while it holds the request
  std::uint64_t tag = 0;      // the target's, while it holds the request
};

inline constexpr std::uint32_t io_max_length = 1u << 20;  // bytes of one read or write; front ends split or
                                                          // refuse more

class BlockTarget {
 public:
  virtual ~BlockTarget() = default;
  virtual std::uint64_t size_bytes() const = 0;  // a multiple of 4096
  virtual void submit(IoRequest& request) = 0;
};

}  // namespace twinloft::repl::ports
