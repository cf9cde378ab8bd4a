// The kernel's side of FUSE over io_uring: the connection, its mount, and the ring. Tests have their own
// implementation.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "uapi.h"

namespace twinloft::repl::fuse {

// A completed command. The kernel's values, which are not checked.
struct RingCompletion {
  std::uint64_t tag = 0;
  int result = 0;
};

// For the owner thread, which must be the thread of every submission: the kernel copies requests into entries
// in the context of that thread.
class RingKernel {
 public:
  virtual ~RingKernel() = default;  // closes the ring and the connection

  virtual Result<unsigned> queues() const = 0;  // the possible processors

  // Opens the connection, and mounts it at `path` (mount.h). Sends no request, so it does not wait. After an
  // error, nothing is mounted. underlying: of the mount point's own file.
  virtual Status mount(const std::string& path, std::uint32_t max_read, struct stat& underlying) = 0;
  virtual dev_t device() const = 0;  // st_dev of the mount's files

  // For another thread than the owner's: both may wait until the owner thread has returned all entries.
  virtual Status unmount(const std::string& path) = 0;
  virtual void abort(const std::string& path, bool connected) = 0;

  // /dev/fuse, which does not block.
  virtual int connection_fd() const = 0;
  virtual ssize_t read(std::span<std::byte> request) = 0;  // bytes, or -errno
  virtual int write(std::span<const iovec> reply) = 0;     // 0, or -errno

  virtual Status open_ring(unsigned entries) = 0;
  virtual int ring_fd() const = 0;  // readable while there are completions
  // `buffers`: header and payload, for REGISTER. At most one command for each tag at a time.
  virtual void push(uapi::RingCommand command, std::uint64_t tag, const uapi::CommandArea& area,
                    std::span<const iovec, 2> buffers) = 0;
  virtual int submit() = 0;  // submits the pushed commands. 0, or -errno: submit them again
  virtual std::size_t reap(std::span<RingCompletion> out) = 0;
  // Waits for a completion. For the end alone, when the loop no longer runs.
  virtual void wait(Duration at_most) = 0;
};

std::unique_ptr<RingKernel> os_ring_kernel();
// With a connection that another process mounts. `mounted` waits for that, and gives the file's attributes.
std::unique_ptr<RingKernel> os_ring_kernel(Fd connection, std::function<Status()> mounted);

inline constexpr const char* ring_parameter = "/sys/module/fuse/parameters/enable_uring";

}  // namespace twinloft::repl::fuse
