// A BlockTarget as a block device by the kernel's ublk driver (export "ublk" of DESIGN 6.6; Linux 6.0 and
// later, where the module ublk_drv is there), with a symbolic link to it.
//
// The driver hands requests over on an io_uring ring and copies their data from and to memory of this
// process: one queue, served on the owner thread. Commands that wait for that queue (start, stop) run on the
// SideThread.
//
// The process gone, the driver fails all requests and takes the device away; it is not taken over by the next
// process
// ("user recovery"), since completed writes that were not flushed are gone. What then remains, a dead device
// that somebody still has mounted, the next export with the same link removes as soon as it is free.
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
  std::string link;            // symbolic link to the device, absolute; also says whose a device is
  unsigned queue_depth = 128;  // requests in flight
  std::uint32_t max_io_bytes = 256u << 10;  // of one request: 32 MiB of buffers in all
  // True: the owner calls flush() after each batch of completions. False: the export does so by itself, a
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
  // The device appears while the loop runs; `ready` is then called with its path ("/dev/ublkb0"), or with why
  // there is none, in which case the export is to be stopped. Errors told there: unavailable (no driver:
  // which module to load), denied, io. To be called on the loop's thread; everything passed by reference must
  // outlive the export.
  static std::unique_ptr<UblkExport> start(ports::Loop& loop, ports::BlockTarget& target,
                                           exports::SideThread& side, UblkOptions options,
                                           std::shared_ptr<Driver> driver,
                                           std::function<void(Result<std::string>)> ready);
  ~UblkExport() override;
  UblkExport(const UblkExport&) = delete;
  UblkExport& operator=(const UblkExport&) = delete;

  void stop(std::function<void(Status)> stopped) override;
  // Takes the time that the driver needs to fail what waits and to remove the device, and serves it
  // meanwhile.
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
