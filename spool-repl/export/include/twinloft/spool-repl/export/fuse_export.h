// A BlockTarget as a regular file, mounted with libfuse (fuse(4)).
//
// The mount point is a regular file, which is created if it is missing. While it is mounted, it is the
// volume. Requests are read from /dev/fuse on the owner thread's loop, and answered in the order in which the
// target completes them.
//
// The loop's thread must not access the mounted file: the kernel would wait for an answer of this same
// thread. Accesses (unmounting, attaching a loop device) run on a SideThread.
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
  unsigned max_background = 128;       // asynchronous requests of the kernel in flight
  std::function<void()> changed = {};  // called when the file is closed, or the connection has ended
};

struct FuseCounters {
  std::uint64_t requests = 0;  // answered
  std::uint64_t errors = 0;    // answered with an error of the target
};

// Checks the mount point as start() does, and changes nothing.
Status check_mount_point(const std::string& path);

class FuseExport {
 public:
  // Mounts and serves the file. A mount that a killed process has left there is removed first. All references
  // must outlive the export. Errors: Errc::invalid (not a regular file), Errc::unavailable (a living process
  // has mounted it, or /dev/fuse is missing), Errc::io.
  static Result<std::unique_ptr<FuseExport>> start(ports::Loop& loop, ports::BlockTarget& target,
                                                   exports::SideThread& side, FuseOptions options);
  // Allowed after stop() has succeeded, or after abort() once in_flight() is 0. With requests in flight, a
  // TL_CHECK fails.
  ~FuseExport();
  FuseExport(const FuseExport&) = delete;
  FuseExport& operator=(const FuseExport&) = delete;

  // Unmounts, and calls `stopped` from the loop. Errors: Errc::unavailable while the file is in use. The
  // export then continues, and stop() may be called again.
  void stop(std::function<void(Status)> stopped);

  // Ends the connection at once: waiting requests fail, and the mount disappears after its last user. For a
  // process that must end; completed writes without a flush are lost, as in a power cut.
  void abort();

  unsigned in_flight() const;
  const FuseCounters& counters() const;
  const std::string& mount_point() const;
  dev_t mounted_device() const;  // st_dev of the file
  bool connected() const;        // false: unmounted or aborted, by this process or another program

  struct State;  // private to the implementation

 private:
  explicit FuseExport(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace twinloft::repl::fuse
