#include "private_mounts.h"

#include <sched.h>
#include <sys/mount.h>

#include <cerrno>

namespace twinloft::repl::snapshot {

namespace {
// It is there wherever FUSE is, and nobody in this process looks at it.
constexpr const char* place = "/sys/fs/fuse/connections";
}  // namespace

Status leave_for_own_mounts() {
  if (::unshare(CLONE_NEWNS) != 0) return fail_errno(errno, "no mount namespace of its own can be made (root is needed)");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return fail_errno(errno, "the mount namespace can not be made private");
  return {};
}

Result<std::string> enter_private_mounts() {
  TL_TRY(leave_for_own_mounts());
  if (::mount("twinloft", place, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,mode=700") != 0)
    return fail_errno(errno, "{}: nothing can be mounted there (is FUSE there: modprobe fuse?)", place);
  return std::string(place);
}

}  // namespace twinloft::repl::snapshot
