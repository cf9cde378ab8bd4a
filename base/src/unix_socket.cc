#include "twinloft/base/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "twinloft/base/fd.h"

namespace twinloft {

Result<SocketPlace> look_at_socket_place(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return fail(Errc::invalid, "{}: longer than the {} bytes that a socket's path can have", path,
                sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return SocketPlace::free;
    return fail_errno(errno, "{}", path);
  }
  if (!S_ISSOCK(found.st_mode))
    return fail(Errc::conflict, "{}: is not a socket: move it away, or choose another path", path);
  Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return fail_errno(errno, "{}: socket", path);
  // A process also listens there if its queue is full (EAGAIN), or if the type or the permissions differ.
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno != ECONNREFUSED)
    return fail(Errc::unavailable, "{}: another process listens there", path);
  return SocketPlace::stale;
}

SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  if (::lstat(path_.c_str(), &made_) != 0) path_.clear();
}

void SocketFile::remove() const {
  struct stat now{};
  if (path_.empty() || ::lstat(path_.c_str(), &now) != 0) return;
  if (now.st_dev == made_.st_dev && now.st_ino == made_.st_ino) ::unlink(path_.c_str());
}

}  // namespace twinloft
