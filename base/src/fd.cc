#include "twinloft/base/fd.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "twinloft/base/process.h"

namespace twinloft {

void Fd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Status write_all(int fd, ByteSpan data) {
  while (!data.empty()) {
    ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail_errno(errno, "write of {} bytes", data.size());
    }
    data = data.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status read_exact(int fd, MutableByteSpan data) {
  while (!data.empty()) {
    ssize_t n = ::read(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail_errno(errno, "read of {} bytes", data.size());
    }
    if (n == 0) return fail(Errc::corrupt, "end of file with {} bytes still expected", data.size());
    data = data.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<SocketPair> make_socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, "socketpair");
  return SocketPair{Fd(ends[0]), Fd(ends[1])};
}

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "{}", path);
  auto text = read_to_end(fd.get(), limit);
  if (text) return text;
  if (text.error().sys != 0) return fail_errno(text.error().sys, "{}", path);
  return fail(text.error().code, "{}: {}", path, text.error().message);
}

}  // namespace twinloft
