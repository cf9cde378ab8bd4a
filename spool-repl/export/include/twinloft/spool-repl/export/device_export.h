// A BlockTarget as a block device under a fixed name: FUSE file, loop device on it, symbolic link to that (export
// "fuse" of DESIGN 6.6).
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
  std::string link;  // symbolic link to the loop device; empty: none
};

class DeviceExport final : public BlockDevice {
 public:
  // Mounts at once, or, where a killed process has left its mount and devices behind, once these are gone; the device
  // appears while the loop runs, and `ready` is then called with its path ("/dev/loop3"), or with why there is none, in
  // which case the export is to be stopped. Everything passed by reference must outlive the export.
  static Result<std::unique_ptr<DeviceExport>> start(ports::Loop& loop, ports::BlockTarget& target, SideThread& side,
                                                     DeviceOptions options,
                                                     std::function<void(Result<std::string>)> ready);
  ~DeviceExport() override;
  DeviceExport(const DeviceExport&) = delete;
  DeviceExport& operator=(const DeviceExport&) = delete;

  void stop(std::function<void(Status)> stopped) override;
  void abort() override;

  const std::string& device() const override { return device_; }
  unsigned in_flight() const override { return fuse_ ? fuse_->in_flight() : 0; }
  fuse::FuseCounters counters() const { return fuse_ ? fuse_->counters() : fuse::FuseCounters{}; }

 private:
  DeviceExport(ports::Loop& loop, ports::BlockTarget& target, SideThread& side, DeviceOptions options)
      : loop_(loop), target_(target), side_(side), options_(std::move(options)) {}
  Status mount();
  void attach();
  void on_attached(Result<std::string> device);
  void detach(std::function<void(Status)> stopped);

  ports::Loop& loop_;
  ports::BlockTarget& target_;

  SideThread& side_;
  DeviceOptions options_;
  std::unique_ptr<fuse::FuseExport> fuse_;
  std::string device_;
  bool aborted_ = false;
  std::function<void(Result<std::string>)> ready_;  // nullptr once it was called
  std::function<void(Status)> stop_after_ready_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // what the side thread brings back looks at it first
};

}  // namespace twinloft::repl::exports
