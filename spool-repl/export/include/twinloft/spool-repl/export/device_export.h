// The export "fuse": a BlockTarget as a block device under a fixed name. The device is a loop device on a
// file of FUSE, and the name is a symbolic link to it. FUSE's requests arrive by /dev/fuse or by io_uring.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/export/block_device.h"
#include "twinloft/spool-repl/export/file_export.h"
#include "twinloft/spool-repl/export/loop_device.h"
#include "twinloft/spool-repl/export/side_thread.h"
#include "twinloft/spool-repl/ports/block_target.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::exports {

// How the kernel's requests arrive.
enum class Transport : std::uint8_t {
  automatic,  // by io_uring if the kernel has it switched on and it passes a test, otherwise by /dev/fuse
  io_uring,   // or an error
  dev_fuse
};

struct DeviceOptions {
  fuse::FuseOptions fuse;
  Transport transport = Transport::dev_fuse;
  // For `automatic`: tests io_uring on the side thread. Must return in bounded time. Empty: /dev/fuse is used
  std::function<Status()> test_ring = {};
  LoopOptions loop;
  std::string link;                               // symbolic link to the loop device; empty: none
  DeviceEvent tell = {};                          // may be empty
  Duration look_every = std::chrono::seconds(1);  // between checks that the loop device is still attached
};

class DeviceExport final : public BlockDevice {
 public:
  // Mounts the file, at once or after the mount and the devices of a killed process are gone. The device is
  // attached while the loop runs. `ready` is then called with its path ("/dev/loop3"), or with an error,
  // after which the caller stops the export. If another program detaches the device later, it is attached
  // again, and `tell` is called. All references must outlive the export.
  static Result<std::unique_ptr<DeviceExport>> start(ports::Loop& loop, ports::BlockTarget& target,
                                                     SideThread& side, DeviceOptions options,
                                                     std::function<void(Result<std::string>)> ready);
  ~DeviceExport() override;
  DeviceExport(const DeviceExport&) = delete;
  DeviceExport& operator=(const DeviceExport&) = delete;

  void stop(std::function<void(Status)> stopped) override;
  void abort(std::function<void()> gone) override;

  const std::string& device() const override { return trouble_.empty() ? loop_device_.device : no_device_; }
  std::string trouble() const override { return trouble_; }
  void flush() override {
    if (fuse_) fuse_->flush();
  }
  unsigned in_flight() const override { return fuse_ ? fuse_->in_flight() : 0; }
  fuse::FuseCounters counters() const { return fuse_ ? fuse_->counters() : fuse::FuseCounters{}; }

 private:
  DeviceExport(ports::Loop& loop, ports::BlockTarget& target, SideThread& side, DeviceOptions options)
      : loop_(loop), target_(target), side_(side), options_(std::move(options)) {}
  Status choose_transport();
  void prepare_then_mount(bool left_over);
  Status mount();
  Status mount_file(fuse::FuseOptions options);
  void attach();
  void on_attached(Result<LoopIdentity> attached);
  Status take(LoopIdentity attached);
  void detach(std::function<void(Status)> stopped);
  void withdraw();
  void look_later();
  void look();
  void lose(std::string why);

  ports::Loop& loop_;
  ports::BlockTarget& target_;

  SideThread& side_;
  DeviceOptions options_;
  std::unique_ptr<fuse::FileExport> fuse_;
  bool by_ring_ = false, test_ring_ = false;
  LoopIdentity loop_device_;  // without a device, its name is empty
  std::string trouble_;
  const std::string no_device_;
  bool aborted_ = false, attaching_ = true, stopping_ = false;
  bool broken_ = false;  // no device was ever attached, or the FUSE connection has ended. Nothing is attached
                         // again
  unsigned looks_since_loss_ = 0;  // of the timer
  ports::Loop::TimerId timer_ = 0;
  std::function<void(Result<std::string>)> ready_;  // nullptr once it was called
  std::function<void(Status)> stop_after_attaching_;
  // Results of the side thread are ignored after the export is destroyed.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace twinloft::repl::exports
