// The states of a ublk device, which control commands change: added, started, stopped, removed. For the side
// thread, unless noted.
//
//   added -> (the owner thread fetches on its queue) -> live -> stopped (dead) -> removed
//
// In Linux 6.1, DEL_DEV waits without end, with the whole driver locked, until no program has the device
// open. So a device is removed only once it is known to be closed.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "driver.h"
#include "twinloft/spool-repl/export/ublk_export.h"

namespace twinloft::repl::ublk {

constexpr unsigned sector_shift = 9;  // the driver counts in sectors of 512 bytes

class Device {
 public:
  // The owner thread may use these members too: give_up at any time, the others while the side thread has no
  // work.
  std::atomic<bool> give_up = false;  // the device is no longer needed
  Fd char_device;                     // after add()
  unsigned depth = 0;                 // after add()
  std::string path;                   // "/dev/ublkb0", after start()
  unsigned left_over = 0;             // devices of earlier processes that are still in use

  Device(std::shared_ptr<Driver> driver, const UblkOptions& options, std::uint64_t size_bytes);

  Status add();
  Status start();  // blocks until the queue has fetched, and while the kernel reads partition tables
  // Errors: Errc::unavailable while the device is in use, without `by_force`. The device is then unchanged.
  // Waiting requests must be served meanwhile.
  Status stop(bool by_force);
  // Call it after stop(), and after the queue was closed. While a program has the device open, it stays as a
  // dead device.
  void remove(int pauses);
  void sweep();  // removes the devices of earlier processes, and sets left_over

  std::uint32_t opcode(uapi::Io c) const { return encoded_ ? uapi::encoded(c) : uapi::plain(c); }
  uapi::Params params() const;

 private:
  int command(uapi::Control c, std::uint32_t id, void* memory = nullptr, std::size_t bytes = 0,
              std::uint64_t data = 0);
  void probe();
  Status set_params();
  Status await_char();
  Status await_unused();
  bool try_remove(std::uint32_t id);

  std::shared_ptr<Driver> driver_;
  const std::string link_;
  const unsigned depth_wanted_;
  const std::uint32_t max_io_bytes_;
  const std::uint64_t size_bytes_;
  const std::uint64_t mark_;  // identifies the export of a device
  bool encoded_ = false;
  std::uint32_t id_ = uapi::any_device;
  const std::atomic<bool> never_ = false;
};

}  // namespace twinloft::repl::ublk
