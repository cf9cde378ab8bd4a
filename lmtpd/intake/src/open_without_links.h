// Opens a name below a directory, and follows no symbolic link on the way (openat2(2)).
#pragma once

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "twinloft/base/fd.h"

namespace twinloft::lmtpd {

// Empty: it failed, and errno says why.
inline Fd open_without_links(int dir, const std::string& name, std::uint64_t flags, std::uint64_t mode = 0) {
  struct open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS;
  long fd;
  do {
    fd = ::syscall(SYS_openat2, dir, name.c_str(), &how, sizeof how);
  } while (fd < 0 && (errno == EINTR || errno == EAGAIN));
  return Fd(static_cast<int>(fd));
}

}  // namespace twinloft::lmtpd
