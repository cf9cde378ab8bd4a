// One asynchronous disk operation of a UringLoop, owned by the caller.
#pragma once

#include <sys/uio.h>

#include <cstdint>

namespace twinloft::repl::io {

// The caller fills `done` and `owner` and keeps the operation, its iovec array and the memory behind it alive
// and unmoved until `done` is called. `done` runs on the loop's thread, never from inside the call that
// started the operation, exactly once; the operation may be reused or freed there.
struct DiskOp {
  void (*done)(DiskOp&) = nullptr;
  void* owner = nullptr;
  int result = 0;  // 0: everything asked for was done; else -errno. -ENODATA: a read met the end of the file

 private:
  friend class UringLoop;
  enum class Kind : std::uint8_t { read, write, datasync, fallocate };
  Kind kind_ = Kind::read;
  bool dsync_ = false;
  bool in_flight_ = false;
  int fd_ = -1;
  int mode_ = 0;              // of fallocate
  unsigned iov_count_ = 0;    // left to transfer
  iovec* iov_ = nullptr;      // moves on, and is changed, as short transfers are continued
  std::uint64_t offset_ = 0;  // of iov_[0]
  std::uint64_t length_ = 0;  // of fallocate
};

}  // namespace twinloft::repl::io
