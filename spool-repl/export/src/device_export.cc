#include "twinloft/spool-repl/export/device_export.h"

#include "fuse/mount.h"
#include "twinloft/base/log.h"

namespace twinloft::repl::exports {

namespace {

// Devices left on a file that a killed process served answer with errors only; free those that nobody holds.
void detach_left_over(const std::string& backing_path) {
  if (!fuse::is_dead_mount(backing_path)) return;
  for (const auto& device : loops_of(backing_path)) {
    auto detached = detach_loop(device);
    if (detached) log_warning("{}: detached; an earlier process left it behind", device);
    else log_warning("left behind by an earlier process: {}", detached.error().message);
  }
}

}  // namespace

Result<std::unique_ptr<DeviceExport>> DeviceExport::start(ports::Loop& loop, ports::BlockTarget& target,
                                                          SideThread& side, DeviceOptions options,
                                                          std::function<void(Result<std::string>)> ready) {
  std::unique_ptr<DeviceExport> device(new DeviceExport(side, std::move(options)));
  detach_left_over(device->options_.fuse.mount_point);
  TL_TRY_ASSIGN(device->fuse_, fuse::FuseExport::start(loop, target, side, device->options_.fuse));
  auto outcome = std::make_shared<Result<std::string>>();
  side.run(
      [outcome, path = device->options_.fuse.mount_point, wanted = device->options_.loop] {
        *outcome = attach_loop(path, wanted);
      },
      [self = device.get(), alive = std::weak_ptr(device->alive_), outcome, ready = std::move(ready)] {
        if (!alive.expired()) self->on_attached(std::move(*outcome), ready);
        else if (*outcome) abandon_loop(**outcome);
      });
  return device;
}

DeviceExport::~DeviceExport() {
  if (!device_.empty() && !options_.link.empty()) withdraw_symlink(device_, options_.link);
}

void DeviceExport::on_attached(Result<std::string> device, const std::function<void(Result<std::string>)>& ready) {
  if (device && aborted_) {
    abandon_loop(*device);
    device = fail(Errc::unavailable, "{}: the export was aborted", options_.fuse.mount_point);
  }
  if (device) {
    device_ = *device;
    if (!options_.link.empty())
      if (auto linked = publish_symlink(device_, options_.link); !linked) device = std::unexpected(linked.error());
  }
  ready(std::move(device));
}

void DeviceExport::stop(std::function<void(Status)> stopped) {
  auto outcome = std::make_shared<Status>();
  side_.run(
      [outcome, device = device_] {
        if (!device.empty()) *outcome = detach_loop(device);
      },
      [this, alive = std::weak_ptr(alive_), outcome, stopped = std::move(stopped)] {
        if (alive.expired()) return;
        if (!*outcome) return stopped(*outcome);
        if (!device_.empty() && !options_.link.empty()) withdraw_symlink(device_, options_.link);
        device_.clear();
        fuse_->stop(stopped);
      });
}

void DeviceExport::abort() {
  aborted_ = true;
  fuse_->abort();  // first: what waits on the device must be able to end
  if (device_.empty()) return;
  abandon_loop(device_);
  if (!options_.link.empty()) withdraw_symlink(device_, options_.link);
  device_.clear();
}

}  // namespace twinloft::repl::exports
