// Serves a target as a loop device on a thread of its own, so that other threads of the process can use the device.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/export/device_export.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::snapshot {

class DeviceThread {
 public:
  // `mount_point`: of the FUSE file, in this thread's mount namespace. The target must outlive this.
  static Result<std::unique_ptr<DeviceThread>> start(ports::BlockTarget& target, const std::string& mount_point);
  // Cuts the device off where stop() has not been called, or did not succeed.
  ~DeviceThread();
  // Once nobody uses the device.
  Status stop();
  const std::string& device() const { return device_; }

 private:
  explicit DeviceThread(ports::BlockTarget& target) : target_(target) {}
  void run(const std::string& mount_point, const std::function<void(Result<std::string>)>& ready);

  ports::BlockTarget& target_;
  OsClock clock_;
  std::unique_ptr<io::UringLoop> loop_;
  std::unique_ptr<exports::SideThread> side_;
  std::unique_ptr<exports::DeviceExport> export_;
  std::string device_;
  std::thread thread_;
};

}  // namespace twinloft::repl::snapshot
