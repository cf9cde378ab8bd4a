// An asynchronous disk operation of a UringLoop, owned by the caller.
#pragma once

#include <sys/uio.h>

#include <cstdint>

namespace twinloft::repl::io {

// The caller sets `done` and `owner`. The operation, its iovec array and the memory of the iovecs stay at
// their addresses until `done` is called. `done` is called exactly once, on the loop's thread, after the call
// that started the operation has returned. It may reuse or free the operation.
struct DiskOp {
  void (*done)(DiskOp&) = nullptr;
  void* owner = nullptr;
  int result = 0;  // 0: complete success. Otherwise -errno; -ENODATA: a read at the end of the file

 private:
  friend class UringLoop;
  enum class Kind : std::uint8_t { read, write, datasync, fallocate };
  Kind kind_ = Kind::read;
  bool dsync_ = false;
  bool in_flight_ = false;
  int fd_ = -1;
  int mode_ = 0;              // of fallocate
  unsigned iov_count_ = 0;    // left to transfer
  iovec* iov_ = nullptr;      // advances, and is changed, when a short transfer continues
  std::uint64_t offset_ = 0;  // of iov_[0]
  std::uint64_t length_ = 0;  // of fallocate
};

}  // namespace twinloft::repl::io
