// One ublk device's life by control commands: added, started, stopped, removed. On the side thread, except
// where noted.
//
//   added -> (the owner thread fetches on its queue) -> live -> stopped (dead) -> removed
//
// A kernel of 6.1 waits in DEL_DEV, without an end and with all of the driver locked, until nobody has the
// device open any more. So a device is removed only once that is known.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "driver.h"
#include "twinloft/spool-repl/export/ublk_export.h"

namespace twinloft::repl::ublk {

class Device {
 public:
  // `give_up` and what is below it may be touched by the owner thread: the first at any time, the rest while
  // no work of the side thread is under way.
  std::atomic<bool> give_up = false;  // nobody waits for the device any more
  Fd char_device;                     // after add()
  unsigned depth = 0;                 // after add()
  std::string path;                   // "/dev/ublkb0", after start()
  unsigned left_over = 0;             // devices of earlier processes that are still in use

  Device(std::shared_ptr<Driver> driver, const UblkOptions& options, std::uint64_t size_bytes);

  Status add();
  Status start();  // blocks until the queue has fetched, and while the kernel looks for partitions
  // Errors: unavailable, while somebody uses it and `by_force` is not set; it then stays as it was. What
  // waits on it has to be served meanwhile.
  Status stop(bool by_force);
  // After stop(), and after the queue was closed. Where somebody still has it open it is left as it is, dead.
  void remove(int pauses);
  void sweep();  // removes what earlier processes have left: sets left_over

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
  const std::uint64_t mark_;  // whose device it is
  bool encoded_ = false;
  std::uint32_t id_ = uapi::any_device;
  const std::atomic<bool> never_ = false;
};

}  // namespace twinloft::repl::ublk
