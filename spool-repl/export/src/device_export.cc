#include "twinloft/spool-repl/export/device_export.h"

#include <utility>

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
  std::unique_ptr<DeviceExport> device(new DeviceExport(loop, target, side, std::move(options)));
  device->ready_ = std::move(ready);
  const std::string& path = device->options_.fuse.mount_point;
  if (!fuse::is_dead_mount(path)) {
    TL_TRY(device->mount());
    return device;
  }
  // Detaching waits for whoever still looks at these devices: not on the thread that all I/O depends on.
  side.run([path] { detach_left_over(path); },
           [self = device.get(), alive = std::weak_ptr(device->alive_)] {
             if (alive.expired()) return;
             Status mounted = self->aborted_ ? Status() : self->mount();
             if (self->aborted_) self->on_attached(std::string());
             else if (!mounted) self->on_attached(std::unexpected(mounted.error()));
           });
  return device;
}

Status DeviceExport::mount() {
  TL_TRY_ASSIGN(fuse_, fuse::FuseExport::start(loop_, target_, side_, options_.fuse));
  attach();
  return {};
}

// A device that nobody takes, since the export or the loop has gone meanwhile, is given back by whoever drops this last.
struct Attachment {
  Result<std::string> device = std::string();
  bool taken = false;
  ~Attachment() {
    if (device && !device->empty() && !taken) abandon_loop(*device);
  }
};

void DeviceExport::attach() {
  auto attachment = std::make_shared<Attachment>();
  side_.run(
      [attachment, path = options_.fuse.mount_point, wanted = options_.loop] {
        auto attached = attach_loop(path, wanted);
        if (attached) attachment->device = std::move(attached->device);
        else attachment->device = std::unexpected(attached.error());
      },
      [this, alive = std::weak_ptr(alive_), attachment] {
        if (alive.expired()) return;
        attachment->taken = true;
        on_attached(std::move(attachment->device));
      });
}

DeviceExport::~DeviceExport() {
  if (!device_.empty() && !options_.link.empty()) withdraw_symlink(device_, options_.link);
}

void DeviceExport::on_attached(Result<std::string> device) {
  if (device && aborted_) {
    if (!device->empty()) abandon_loop(*device);
    device = fail(Errc::unavailable, "{}: the export was aborted", options_.fuse.mount_point);
  }
  if (device) {
    device_ = *device;
    if (!options_.link.empty())
      if (auto linked = publish_symlink(device_, options_.link); !linked) device = std::unexpected(linked.error());
  }
  std::weak_ptr alive(alive_);
  std::exchange(ready_, nullptr)(std::move(device));
  if (alive.expired() || !stop_after_ready_) return;
  detach(std::exchange(stop_after_ready_, nullptr));
}

void DeviceExport::stop(std::function<void(Status)> stopped) {
  if (ready_) stop_after_ready_ = std::move(stopped);
  else detach(std::move(stopped));
}

void DeviceExport::detach(std::function<void(Status)> stopped) {
  auto outcome = std::make_shared<Status>();
  side_.run(
      [outcome, device = device_] {
        if (!device.empty()) *outcome = detach_loop(device);
      },
      [this, alive = std::weak_ptr(alive_), outcome, stopped = std::move(stopped)] {
        if (alive.expired()) return;
        if (aborted_) return stopped({});  // meanwhile: nothing is left to be stopped
        if (!*outcome) return stopped(*outcome);
        if (!device_.empty() && !options_.link.empty()) withdraw_symlink(device_, options_.link);
        device_.clear();
        if (!fuse_) return stopped({});
        fuse_->stop(stopped);
      });
}

void DeviceExport::abort() {
  aborted_ = true;
  if (fuse_) fuse_->abort();  // first: what waits on the device must be able to end
  if (device_.empty()) return;
  abandon_loop(device_);
  if (!options_.link.empty()) withdraw_symlink(device_, options_.link);
  device_.clear();
}

}  // namespace twinloft::repl::exports
