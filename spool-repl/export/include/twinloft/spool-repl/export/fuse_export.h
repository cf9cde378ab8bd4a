// A BlockTarget as a regular file, mounted with libfuse (fuse(4)).
//
// The mount point is a regular file, which is created if it is missing. While it is mounted, it is the
// volume. Requests are read from /dev/fuse on the owner thread's loop, and answered in the order in which the
// target completes them.
//
// The loop's thread must not access the mounted file: the kernel would wait for an answer of this same
// thread. Accesses (unmounting, attaching a loop device) run on a SideThread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/export/file_export.h"
#include "twinloft/spool-repl/export/side_thread.h"
#include "twinloft/spool-repl/ports/block_target.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::fuse {

// Checks the mount point as start() does, and changes nothing.
Status check_mount_point(const std::string& path);

class FuseExport final : public FileExport {
 public:
  // Mounts and serves the file. A mount that a killed process has left there is removed first. All references
  // must outlive the export. Errors: Errc::invalid (not a regular file), Errc::unavailable (a living process
  // has mounted it, or /dev/fuse is missing), Errc::io.
  static Result<std::unique_ptr<FuseExport>> start(ports::Loop& loop, ports::BlockTarget& target,
                                                   exports::SideThread& side, FuseOptions options);
  // Allowed after stop() has succeeded, or after abort() once in_flight() is 0. With requests in flight, a
  // TL_CHECK fails.
  ~FuseExport() override;
  FuseExport(const FuseExport&) = delete;
  FuseExport& operator=(const FuseExport&) = delete;

  void stop(std::function<void(Status)> stopped) override;
  // The connection has ended when abort() returns.
  void abort(std::function<void()> afterwards) override;

  unsigned in_flight() const override;
  const FuseCounters& counters() const override;
  const std::string& mount_point() const override;
  dev_t mounted_device() const override;
  bool connected() const override;

  struct State;  // private to the implementation

 private:
  explicit FuseExport(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace twinloft::repl::fuse
