#include "private_mounts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>

#include "twinloft/base/fd.h"

namespace twinloft::repl::snapshot {

namespace {

// It is there wherever the module is loaded, and nobody in this process looks at it.
constexpr const char* place = "/sys/fs/fuse/connections";

// The kernel loads the module when the device is opened for the first time since it started. Before that
// there is no `place`.
Status load_fuse() {
  if (!Fd(::open("/dev/fuse", O_RDWR | O_CLOEXEC)))
    return fail_errno(errno, "/dev/fuse (is FUSE there: modprobe fuse?)");
  return {};
}

}  // namespace

Status leave_for_own_mounts() {
  if (::unshare(CLONE_NEWNS) != 0)
    return fail_errno(errno, "no mount namespace can be created (root is needed)");
  // Not MS_PRIVATE: what is unmounted elsewhere has to go here too, or its device stays in use for as long as
  // this one lives.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return fail_errno(errno, "the mount namespace can not be separated from the machine's");
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
