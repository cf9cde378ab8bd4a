#include "private_mounts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>

#include "twinloft/base/fd.h"

namespace twinloft::repl::snapshot {

namespace {

// This directory exists if the module is loaded, and this process does not use it.
constexpr const char* place = "/sys/fs/fuse/connections";

// The kernel loads the module at the first open of the device. Before that, `place` does not exist.
Status load_fuse() {
  if (!Fd(::open("/dev/fuse", O_RDWR | O_CLOEXEC)))
    return fail_errno(errno, "/dev/fuse (is the kernel module \"fuse\" loaded?)");
  return {};
}

}  // namespace

Status leave_for_own_mounts() {
  if (::unshare(CLONE_NEWNS) != 0)
    return fail_errno(errno, "no mount namespace can be created (root is needed)");
  // Not MS_PRIVATE: an unmount outside must also take effect here. Otherwise the device would stay in use
  // until this process ends.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return fail_errno(errno, "the mount namespace cannot be separated from the machine's");
  return {};
}

Result<std::string> enter_private_mounts() {
  TL_TRY(load_fuse());
  TL_TRY(leave_for_own_mounts());
  if (::mount("twinloft", place, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,mode=700") != 0)
    return fail_errno(errno, "{}: nothing can be mounted there", place);
  return std::string(place);
}

}  // namespace twinloft::repl::snapshot
