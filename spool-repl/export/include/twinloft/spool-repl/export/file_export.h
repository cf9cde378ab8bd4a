// The common interface of the exports that mount a BlockTarget as a regular file of FUSE. They differ in how
// requests arrive: by reads of /dev/fuse (FuseExport), or by io_uring (RingExport).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::fuse {

struct FuseOptions {
  std::string mount_point;  // absolute
  std::size_t retained_buffer_bytes = 16u << 20;
  unsigned max_background = 128;       // asynchronous requests of the kernel in flight
  bool owner_flushes = false;          // the owner calls flush() after each batch of completions
  std::function<void()> changed = {};  // called when the file is closed, or the connection has ended
};

struct FuseCounters {
  std::uint64_t requests = 0;   // answered
  std::uint64_t errors = 0;     // answered with an error of the target
  unsigned most_in_flight = 0;  // requests at the target at one time
};

class FileExport {
 public:
  // Allowed after stop() has succeeded, or after abort() once in_flight() is 0. With requests in flight, a
  // TL_CHECK fails.
  virtual ~FileExport() = default;

  // Unmounts, and calls `stopped` from the loop. Errors: Errc::unavailable while the file is in use. The
  // export then continues, and stop() may be called again.
  virtual void stop(std::function<void(Status)> stopped) = 0;

  // Ends the connection: waiting requests fail, and the mount disappears after its last user. For a process
  // that must end; completed writes without a flush are lost, as in a power cut. `afterwards` may be empty.
  // It runs after the end of the connection, on a thread that may wait for the file's other users.
  virtual void abort(std::function<void()> afterwards) = 0;
  // Sends the replies, if the owner has chosen to do so.
  virtual void flush() {}

  virtual unsigned in_flight() const = 0;
  virtual const FuseCounters& counters() const = 0;
  virtual const std::string& mount_point() const = 0;
  virtual dev_t mounted_device() const = 0;  // st_dev of the file
  virtual bool connected() const = 0;  // false: unmounted or aborted, by this process or another program
};

}  // namespace twinloft::repl::fuse
