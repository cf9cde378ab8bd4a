// The export "ublk": a BlockTarget as a block device of the kernel's ublk driver, with a symbolic link to it.
// Needs Linux 6.0 and the module ublk_drv. Source: linux/ublk_cmd.h and Documentation/block/ublk.rst of the
// kernel.
//
// The driver passes requests by an io_uring ring, and copies their data from and to memory of this process.
// The owner thread serves the only queue. Commands that wait for the queue (start, stop) run on the
// SideThread.
//
// When the process ends, the driver fails all requests and removes the device. The next process does not take
// the device over ("user recovery"), since completed writes without a flush are lost. A dead device stays
// while it is mounted. The next export with the same link removes it once it is free.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/export/block_device.h"
#include "twinloft/spool-repl/export/side_thread.h"
#include "twinloft/spool-repl/ports/block_target.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::ublk {

struct UblkOptions {
  std::string link;            // the symbolic link, absolute; it also identifies the devices of this export
  unsigned queue_depth = 128;  // requests in flight
  std::uint32_t max_io_bytes = 256u << 10;  // of a request; 32 MiB of buffers in total
  // True: the owner calls flush() after each batch of completions. False: the export calls it itself, one
  // turn later.
  bool owner_flushes = false;
  exports::DeviceEvent tell = {};  // may be empty
};

struct UblkCounters {
  std::uint64_t requests = 0;  // answered
  std::uint64_t errors = 0;    // answered with an error
};

class Driver;
std::shared_ptr<Driver> kernel_driver(std::string control = "/dev/ublk-control");

class UblkExport final : public exports::BlockDevice {
 public:
  // Call it on the loop's thread. The device appears while the loop runs. `ready` is then called with its
  // path
  // ("/dev/ublkb0"), or with an error, after which the caller stops the export. Errors: Errc::unavailable (no
  // driver, with the module to load), Errc::denied, Errc::io. All references must outlive the export.
  static std::unique_ptr<UblkExport> start(ports::Loop& loop, ports::BlockTarget& target,
                                           exports::SideThread& side, UblkOptions options,
                                           std::shared_ptr<Driver> driver,
                                           std::function<void(Result<std::string>)> ready);
  ~UblkExport() override;
  UblkExport(const UblkExport&) = delete;
  UblkExport& operator=(const UblkExport&) = delete;

  void stop(std::function<void(Status)> stopped) override;
  // As BlockDevice::abort(). The driver needs some time to fail the waiting requests and to remove the
  // device. The export serves it meanwhile.
  void abort(std::function<void()> gone) override;
  void flush() override;
  const std::string& device() const override;
  std::string trouble() const override;
  unsigned in_flight() const override;
  const UblkCounters& counters() const;

  struct State;  // private to the implementation

 private:
  explicit UblkExport(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace twinloft::repl::ublk
