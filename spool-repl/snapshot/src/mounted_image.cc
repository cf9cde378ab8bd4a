#include "twinloft/spool-repl/snapshot/mounted_image.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>

#include "device_thread.h"
#include "file_system.h"
#include "private_mounts.h"
#include "twinloft/base/log.h"

namespace twinloft::repl::snapshot {

struct MountedImage::Device {
  std::unique_ptr<DeviceThread> thread;
};

namespace {

// What the kernel says of a failed request is EIO; what it was is known here.
std::unexpected<Error> with_cause(Error e, const CowTarget& target) {
  if (auto cause = target.failure()) e.message += ". A request of its failed: " + cause->message;
  return std::unexpected(std::move(e));
}

}  // namespace

Result<std::unique_ptr<MountedImage>> MountedImage::mount(const journal::Image& image, const std::string& overlay_directory) {
  std::unique_ptr<MountedImage> out(new MountedImage);
  TL_TRY_ASSIGN(out->target_, CowTarget::create(image, overlay_directory));
  TL_TRY_ASSIGN(std::string place, enter_private_mounts());
  std::string directory = place + "/root";
  if (::mkdir(directory.c_str(), 0700) != 0) return fail_errno(errno, "{}: cannot be made", directory);
  out->device_ = std::make_unique<Device>();
  TL_TRY_ASSIGN(out->device_->thread, DeviceThread::start(*out->target_, place + "/volume"));
  const std::string& device = out->device_->thread->device();
  auto type = file_system_on(device);
  if (!type) return with_cause(type.error(), *out->target_);
  out->type_ = *type;
  if (Status mounted = mount_file_system(device, out->type_, directory); !mounted) return with_cause(mounted.error(), *out->target_);
  out->directory_ = directory;
  out->root_ = Fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out->root_) return fail_errno(errno, "the root of the image's file system can not be opened");
  return out;
}

Status MountedImage::unmount() {
  root_.reset();
  if (!directory_.empty() && ::umount2(directory_.c_str(), UMOUNT_NOFOLLOW) != 0)
    return fail_errno(errno, "the image can not be unmounted");
  directory_.clear();
  if (device_ && device_->thread) TL_TRY(device_->thread->stop());
  return {};
}

// What does not end well here ends with the process.
MountedImage::~MountedImage() {
  if (Status done = unmount(); !done) log_warning("{}", done.error().message);
}

}  // namespace twinloft::repl::snapshot
