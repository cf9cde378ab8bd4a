// A BlockTarget as one regular file, mounted with libfuse (DESIGN 6.6).
//
// The mount point is itself a regular file; it is created if missing and becomes the volume while mounted.
// Requests are taken from /dev/fuse on the owner thread's loop and answered as the target completes them, in
// any order.
//
// The serving process must never touch the mounted file from the loop's thread: the kernel would wait for an
// answer that this thread has to give. What has to touch it (unmounting, attaching a loop device) runs on a
// SideThread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/export/side_thread.h"
#include "twinloft/spool-repl/ports/block_target.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::fuse {

struct FuseOptions {
  std::string mount_point;  // absolute
  std::size_t retained_buffer_bytes = 16u << 20;
  unsigned max_background = 128;       // asynchronous requests the kernel keeps in flight
  std::function<void()> changed = {};  // somebody has closed the file, or the connection has ended
};

struct FuseCounters {
  std::uint64_t requests = 0;  // answered
  std::uint64_t errors = 0;    // answered with an error of the target
};

// What start() would refuse the mount point for. Changes nothing.
Status check_mount_point(const std::string& path);

class FuseExport {
 public:
  // Mounts and serves. A dead mount that a killed process left at the same place is removed first, a living
  // one is an error. Everything passed by reference must outlive the export. Errors: invalid (not a regular
  // file), unavailable (mounted already, no /dev/fuse), io.
  static Result<std::unique_ptr<FuseExport>> start(ports::Loop& loop, ports::BlockTarget& target,
                                                   exports::SideThread& side, FuseOptions options);
  // After stop() succeeded, or after abort() once in_flight() is 0; a check fails while the target holds
  // requests.
  ~FuseExport();
  FuseExport(const FuseExport&) = delete;
  FuseExport& operator=(const FuseExport&) = delete;

  // Unmounts, then calls back from the loop. Fails with Errc::unavailable while the file is in use; the
  // export then goes on serving and stop() may be tried again.
  void stop(std::function<void(Status)> stopped);

  // Cuts the connection at once: waiting requests get errors, and the mount goes as soon as nobody holds
  // it. For a process that has to give up; completed writes that were not flushed are what a power cut would
  // cost.
  void abort();

  unsigned in_flight() const;
  const FuseCounters& counters() const;
  const std::string& mount_point() const;
  dev_t mounted_device() const;  // st_dev of the file
  bool connected() const;        // false: unmounted or aborted, by whomever

  struct State;  // private to the implementation

 private:
  explicit FuseExport(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace twinloft::repl::fuse
