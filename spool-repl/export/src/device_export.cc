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
  Result<AttachedLoop> loop = AttachedLoop{};
  bool taken = false;
  ~Attachment() {
    if (loop && !loop->device.empty() && !taken) abandon_loop(loop->device);
  }
};

void DeviceExport::attach() {
  auto attachment = std::make_shared<Attachment>();
  side_.run(
      [attachment, path = options_.fuse.mount_point, wanted = options_.loop] {
        attachment->loop = attach_loop(path, wanted);
      },
      [this, alive = std::weak_ptr(alive_), attachment] {
        if (alive.expired()) return;
        attachment->taken = true;
        if (!attachment->loop) return on_attached(std::unexpected(attachment->loop.error()));
        held_ = std::move(attachment->loop->held);
        on_attached(std::move(attachment->loop->device));
      });
}

DeviceExport::~DeviceExport() {
  if (!device_.empty() && !options_.link.empty()) withdraw_symlink(device_, options_.link);
}

void DeviceExport::on_attached(Result<std::string> device) {
  if (device && aborted_) {
    held_.reset();
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
  auto held = std::make_shared<Fd>(std::move(held_));
  side_.run(
      [outcome, held, device = device_, path = options_.fuse.mount_point, autoclear = options_.loop.autoclear] {
        if (device.empty()) return;
        held->reset();
        *outcome = autoclear ? await_cleared(device, path) : detach_loop(device);
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
  held_.reset();
  if (device_.empty()) return;
  abandon_loop(device_);
  if (!options_.link.empty()) withdraw_symlink(device_, options_.link);
  device_.clear();
}

}  // namespace twinloft::repl::exports
