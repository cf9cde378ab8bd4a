// A BlockTarget as a regular file, mounted with FUSE over io_uring (Linux 6.14).
//
// The kernel puts requests into entries of a ring, and takes replies from there. Data is read and written in
// the entries' own buffers. /dev/fuse carries the first request, and the few that never use the ring.
//
// The owner thread serves the ring. It must never wait for the mount: the kernel's end of a connection waits
// until the owner thread has returned every entry. So the mount is ended on a thread of the export, and no
// thread that waits for the file may keep /dev/fuse open (own_descriptors.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/export/file_export.h"
#include "twinloft/spool-repl/ports/block_target.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::fuse {

class RingKernel;
std::unique_ptr<RingKernel> os_ring_kernel();

// Whether new connections may use the ring: the kernel has it, and its parameter is Y. Errors:
// Errc::unavailable, with what to do.
Status ring_is_switched_on();

inline constexpr std::uint32_t ring_io_bytes_max = 256u << 10;  // of a read or write
inline constexpr unsigned ring_queues_max = 128;                // processors
// Entries of each queue, so that all queues together have about 128 with at most 32 processors.
unsigned ring_entries_per_queue(unsigned queues);

class RingExport final : public FileExport {
 public:
  // As FuseExport::start(). The ring is ready, or nothing is mounted. Errors: also Errc::unavailable (the
  // kernel has no ring, or it is switched off or refused).
  static Result<std::unique_ptr<RingExport>> start(ports::Loop& loop, ports::BlockTarget& target,
                                                   FuseOptions options, std::unique_ptr<RingKernel> kernel);
  // Waits up to 5 s until the kernel has returned the entries. Their memory is kept if it does not.
  ~RingExport() override;
  RingExport(const RingExport&) = delete;
  RingExport& operator=(const RingExport&) = delete;

  void stop(std::function<void(Status)> stopped) override;
  void abort(std::function<void()> afterwards) override;
  void flush() override;

  unsigned in_flight() const override;
  const FuseCounters& counters() const override;
  const std::string& mount_point() const override;
  dev_t mounted_device() const override;
  bool connected() const override;

  struct State;  // private to the implementation

 private:
  explicit RingExport(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace twinloft::repl::fuse
