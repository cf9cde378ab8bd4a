#include "twinloft/spool-repl/snapshot/mounted_image.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>

#include "file_system.h"
#include "image_server.h"
#include "private_mounts.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/export/loop_device.h"

namespace twinloft::repl::snapshot {

// The parts, which are removed in reverse order.
struct MountedImage::Parts {
  std::string file, directory;  // the file of the image, and the mount point of its file system
  std::unique_ptr<ImageServer> server;
  exports::AttachedLoop loop;
  bool mounted = false;
};

namespace {

// The kernel reports a failed request as EIO. The target knows the reason.
std::unexpected<Error> with_cause(Error e, const CowTarget& target) {
  if (auto cause = target.failure()) e.message += ". A request failed: " + cause->message;
  return std::unexpected(std::move(e));
}

}  // namespace

MountedImage::MountedImage() : parts_(std::make_unique<Parts>()) {}

Result<std::unique_ptr<MountedImage>> MountedImage::mount(const journal::Image& image,
                                                          const std::string& overlay_directory) {
  std::unique_ptr<MountedImage> out(new MountedImage);
  Parts& parts = *out->parts_;
  TL_TRY_ASSIGN(out->target_, CowTarget::create(image, overlay_directory));
  TL_TRY_ASSIGN(std::string place, enter_private_mounts());
  parts.file = place + "/volume";
  parts.directory = place + "/root";
  if (::mkdir(parts.directory.c_str(), 0700) != 0)
    return fail_errno(errno, "{}: cannot be made", parts.directory);
  TL_TRY_ASSIGN(parts.server, ImageServer::start(*out->target_, parts.file));
  // The last process of a namespace unmounts its mounts before it closes its files. The server would wait for
  // itself, so the file system is mounted in a namespace without the server.
  TL_TRY(leave_for_own_mounts());
  if (Status mounted = out->mount_file(); !mounted) return with_cause(mounted.error(), *out->target_);
  return out;
}

Status MountedImage::mount_file() {
  Parts& parts = *parts_;
  exports::LoopOptions options;
  options.autoclear = true;
  options.block_bytes = 512;  // a file system that was made over NBD may have such sectors, and cannot be
                              // mounted from a device with larger sectors
  TL_TRY_ASSIGN(parts.loop, exports::attach_loop(parts.file, options));
  TL_TRY_ASSIGN(type_, file_system_on(parts.loop.device));
  TL_TRY(mount_file_system(parts.loop.device, type_, parts.directory));
  parts.mounted = true;
  root_ = Fd(::open(parts.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root_) return fail_errno(errno, "the root of the image's file system cannot be opened");
  return {};
}

Status MountedImage::unmount() {
  Parts& parts = *parts_;
  root_.reset();
  if (parts.mounted && ::umount2(parts.directory.c_str(), UMOUNT_NOFOLLOW) != 0)
    return fail_errno(errno, "the image cannot be unmounted");
  if (parts.loop.device.empty()) return {};
  parts.loop.held.reset();
  return exports::await_cleared(parts.loop);
}

// Parts that cannot be removed disappear with the process.
MountedImage::~MountedImage() {
  if (Status done = unmount(); !done) log_warning("{}", done.error().message);
}

}  // namespace twinloft::repl::snapshot
