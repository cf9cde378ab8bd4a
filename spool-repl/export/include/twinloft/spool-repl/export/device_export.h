// A BlockTarget as a block device under a fixed name: FUSE file, loop device on it, symbolic link to that
// (export "fuse" of DESIGN 6.6).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/export/block_device.h"
#include "twinloft/spool-repl/export/fuse_export.h"
#include "twinloft/spool-repl/export/loop_device.h"
#include "twinloft/spool-repl/export/side_thread.h"

namespace twinloft::repl::exports {

struct DeviceOptions {
  fuse::FuseOptions fuse;
  LoopOptions loop;
  std::string link;                               // symbolic link to the loop device; empty: none
  DeviceEvent tell = {};                          // may be empty
  Duration look_every = std::chrono::seconds(1);  // whether the loop device is attached still
};

class DeviceExport final : public BlockDevice {
 public:
  // Mounts at once, or, where a killed process has left its mount and devices behind, once these are gone;
  // the device appears while the loop runs, and `ready` is then called with its path ("/dev/loop3"), or with
  // why there is none, in which case the export is to be stopped. A device that another program detaches
  // later is attached again, and told. Everything passed by reference must outlive the export.
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
  unsigned in_flight() const override { return fuse_ ? fuse_->in_flight() : 0; }
  fuse::FuseCounters counters() const { return fuse_ ? fuse_->counters() : fuse::FuseCounters{}; }

 private:
  DeviceExport(ports::Loop& loop, ports::BlockTarget& target, SideThread& side, DeviceOptions options)
      : loop_(loop), target_(target), side_(side), options_(std::move(options)) {}
  Status mount();
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
  std::unique_ptr<fuse::FuseExport> fuse_;
  LoopIdentity loop_device_;  // the device's name is empty while there is none
  std::string trouble_;
  const std::string no_device_;
  bool aborted_ = false, attaching_ = true, stopping_ = false;
  bool broken_ = false;  // there never was a device, or the FUSE connection has ended: nothing is attached
                         // again
  unsigned looks_since_loss_ = 0;  // by the timer
  ports::Loop::TimerId timer_ = 0;
  std::function<void(Result<std::string>)> ready_;  // nullptr once it was called
  std::function<void(Status)> stop_after_attaching_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // what the side thread brings back looks at
                                                                // it first
};

}  // namespace twinloft::repl::exports
