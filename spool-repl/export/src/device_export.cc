#include "twinloft/spool-repl/export/device_export.h"

#include <utility>

#include "fuse/mount.h"
#include "fuse/ring_kernel.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/export/fuse_export.h"
#include "twinloft/spool-repl/export/loop_process.h"
#include "twinloft/spool-repl/export/ring_export.h"

namespace twinloft::repl::exports {

namespace {

constexpr unsigned looks_before_attaching = 2;

// Detaches the unused loop devices of a killed process, which only answer with errors. The path alone does
// not identify a file: in another mount namespace it is another file.
void detach_left_over(const std::string& backing_path) {
  if (!fuse::is_dead_mount(backing_path)) return;
  auto mount = fuse::topmost_mount(backing_path);
  if (!mount || !*mount) return;
  for (const auto& loop : loops_of(backing_path)) {
    if (!is_on(loop, (*mount)->device)) continue;
    auto detached = detach_loop(loop);
    if (detached)
      log_warning("{}: detached; an earlier process left it behind", loop.device);
    else
      log_warning("left behind by an earlier process: {}", detached.error().message);
  }
}

}  // namespace

Result<std::unique_ptr<DeviceExport>> DeviceExport::start(ports::Loop& loop, ports::BlockTarget& target,
                                                          SideThread& side, DeviceOptions options,
                                                          std::function<void(Result<std::string>)> ready) {
  std::unique_ptr<DeviceExport> device(new DeviceExport(loop, target, side, std::move(options)));
  device->ready_ = std::move(ready);
  TL_TRY(device->choose_transport());
  bool left_over = fuse::is_dead_mount(device->options_.fuse.mount_point);
  if (left_over || device->test_ring_)
    device->prepare_then_mount(left_over);
  else
    TL_TRY(device->mount());
  return device;
}

Status DeviceExport::choose_transport() {
  if (options_.transport == Transport::dev_fuse) return {};
  Status on = fuse::ring_is_switched_on();
  if (options_.transport == Transport::io_uring) {
    by_ring_ = true;
    return on;
  }
  if (!on)
    log_info("fuse: {}: requests come by /dev/fuse: {}", options_.fuse.mount_point, on.error().message);
  test_ring_ = on && options_.test_ring;
  return {};
}

// Detaching waits for programs that read these devices, so it is not done on the thread of all I/O.
void DeviceExport::prepare_then_mount(bool left_over) {
  auto tested = std::make_shared<Status>();
  side_.run(
      [left_over, path = options_.fuse.mount_point, tested,
       test = test_ring_ ? options_.test_ring : std::function<Status()>()] {
        if (left_over) detach_left_over(path);
        if (test) *tested = test();
      },
      [this, alive = std::weak_ptr(alive_), tested] {
        if (alive.expired()) return;
        by_ring_ = by_ring_ || (test_ring_ && *tested);
        if (test_ring_ && !*tested)
          log_warning("fuse: {}: requests come by /dev/fuse: io_uring has failed its test: {}",
                      options_.fuse.mount_point, tested->error().message);
        if (aborted_) return on_attached(LoopIdentity{});
        Status mounted = mount();
        if (!mounted) on_attached(std::unexpected(mounted.error()));
      });
}

Status DeviceExport::mount() {
  fuse::FuseOptions options = options_.fuse;
  options.changed = [this] { look(); };
  TL_TRY(mount_file(std::move(options)));
  attach();
  return {};
}

Status DeviceExport::mount_file(fuse::FuseOptions options) {
  if (by_ring_) {
    auto ring = fuse::RingExport::start(loop_, target_, options, fuse::os_ring_kernel());
    if (ring) {
      log_info("fuse: {}: requests come by io_uring", options.mount_point);
      fuse_ = std::move(*ring);
      return {};
    }
    if (options_.transport == Transport::io_uring) return std::unexpected(ring.error());
    log_warning("fuse: {}: requests come by /dev/fuse: {}", options.mount_point, ring.error().message);
  }
  TL_TRY_ASSIGN(fuse_, fuse::FuseExport::start(loop_, target_, side_, std::move(options)));
  return {};
}

// If the export or the loop has ended meanwhile, the device is detached with the last reference.
struct Attachment {
  Result<LoopIdentity> loop = LoopIdentity();
  bool taken = false;
  ~Attachment() {
    if (loop && !loop->device.empty() && !taken) abandon_loop(*loop);
  }
};

void DeviceExport::attach() {
  attaching_ = true;
  auto attachment = std::make_shared<Attachment>();
  LoopOptions wanted = options_.loop;
  wanted.backing_device = fuse_->mounted_device();
  side_.run([attachment, path = options_.fuse.mount_point,
             wanted] { attachment->loop = attach_loop_apart(path, wanted); },
            [this, alive = std::weak_ptr(alive_), attachment] {
              if (alive.expired()) return;
              attachment->taken = true;
              on_attached(std::move(attachment->loop));
            });
}

DeviceExport::~DeviceExport() {
  if (timer_ != 0) loop_.cancel(timer_);
  withdraw();
}

void DeviceExport::withdraw() {
  if (!loop_device_.device.empty() && !options_.link.empty())
    withdraw_symlink(loop_device_.device, options_.link);
  loop_device_ = {};
}

Status DeviceExport::take(LoopIdentity attached) {
  loop_device_ = std::move(attached);
  if (!options_.link.empty()) TL_TRY(publish_symlink(loop_device_.device, options_.link));
  return {};
}

void DeviceExport::on_attached(Result<LoopIdentity> attached) {
  attaching_ = false;
  if (attached && aborted_) {
    if (!attached->device.empty()) fuse_->abort([loop = *attached] { abandon_loop(loop); });
    attached = fail(Errc::unavailable, "{}: the export was aborted", options_.fuse.mount_point);
  }
  Status taken = attached ? take(std::move(*attached)) : Status(std::unexpected(attached.error()));
  std::weak_ptr alive(alive_);
  if (ready_) {
    broken_ = !taken;
    std::exchange(ready_,
                  nullptr)(taken ? Result<std::string>(loop_device_.device) : std::unexpected(taken.error()));
  } else if (!aborted_) {
    if (taken && options_.tell)
      options_.tell(fmt::format("the block device is attached again, as {}", loop_device_.device), false);
    trouble_ = taken
                   ? ""
                   : fmt::format(
                         "another program has detached its loop device, and it cannot be attached again: {}",
                         taken.error().message);
  }
  if (alive.expired()) return;
  if (stop_after_attaching_) return detach(std::exchange(stop_after_attaching_, nullptr));
  if (!aborted_) look_later();
}

void DeviceExport::look_later() {
  if (timer_ != 0) return;
  timer_ = loop_.after(options_.look_every, [this] {
    timer_ = 0;
    ++looks_since_loss_;
    look();
    if (!stopping_ && !aborted_) look_later();
  });
}

// Other programs may detach the loop device, whose number then passes to another file, or abort the FUSE
// connection.
void DeviceExport::look() {
  if (attaching_ || stopping_ || aborted_ || broken_ || !fuse_) return;
  if (!fuse_->connected()) {
    broken_ = true;
    return lose(
        fmt::format("{}: unmounted or aborted by another program. Unmount what is on the device; then demote "
                    "and promote this "
                    "replica, or restart spool-repl",
                    options_.fuse.mount_point));
  }
  if (!loop_device_.device.empty()) {
    if (is_attached(loop_device_)) return;
    lose(fmt::format(
        "{} is no longer attached: another program has detached it. It is attached again in a moment",
        loop_device_.device));
    loop_device_ = {};
    looks_since_loss_ = 0;
  }
  // Not at once: an operator who detaches several devices in turn would find this device again.
  if (looks_since_loss_ >= looks_before_attaching) attach();
}

// The loop device of an ended connection is remembered, and detached at the stop.
void DeviceExport::lose(std::string why) {
  if (!options_.link.empty()) withdraw_symlink(loop_device_.device, options_.link);
  trouble_ = why;
  if (options_.tell) options_.tell("the block device is lost: " + std::move(why), true);
}

void DeviceExport::stop(std::function<void(Status)> stopped) {
  if (attaching_)
    stop_after_attaching_ = std::move(stopped);
  else
    detach(std::move(stopped));
}

void DeviceExport::detach(std::function<void(Status)> stopped) {
  stopping_ = true;
  auto outcome = std::make_shared<Status>();
  side_.run(
      [outcome, loop = loop_device_] {
        if (!loop.device.empty()) *outcome = detach_loop_apart(loop);
      },
      [this, alive = std::weak_ptr(alive_), outcome, stopped = std::move(stopped)] {
        if (alive.expired()) return;
        if (aborted_) return stopped({});  // aborted meanwhile: nothing is left to stop
        if (!*outcome) {
          stopping_ = false;
          look_later();
          return stopped(*outcome);
        }
        withdraw();
        if (!fuse_) return stopped({});
        fuse_->stop([this, alive, stopped](Status unmounted) {
          if (!alive.expired() && !unmounted) stopping_ = false, look_later();
          stopped(std::move(unmounted));
        });
      });
}

void DeviceExport::abort(std::function<void()> gone) {
  loop_.post([alive = std::weak_ptr(alive_), gone = std::move(gone)] {
    if (!alive.expired() && gone) gone();
  });
  aborted_ = true;
  // First, so that waiting requests can end: closing the loop device waits for them.
  if (fuse_)
    fuse_->abort([loop = loop_device_] {
      if (!loop.device.empty()) abandon_loop(loop);
    });
  if (!loop_device_.device.empty()) withdraw();
}

}  // namespace twinloft::repl::exports
