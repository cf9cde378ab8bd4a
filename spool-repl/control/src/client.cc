#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "twinloft/spool-repl/control/control.h"

namespace twinloft::repl::control {

Result<std::string> ask(const std::string& path, const std::string& command, Duration timeout) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(Errc::invalid, "{}: path too long for a socket", path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "socket");
  auto us = std::chrono::duration_cast<std::chrono::microseconds>(timeout).count();
  timeval tv{us / 1'000'000, us % 1'000'000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
    auto error = fail_errno(errno, "no answer at {} (is spool-repl serving this volume?)", path);
    error.error().code = Errc::unavailable;
    return error;
  }
  TL_TRY(write_all(fd.get(), as_bytes(command + "\n")));
  std::string out;
  char buffer[4096];
  for (;;) {
    ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return fail(Errc::timeout, "{}: no answer in time", path);
    if (n < 0) return fail_errno(errno, "{}", path);
    if (n == 0) break;
    out.append(buffer, static_cast<std::size_t>(n));
  }
  if (out.starts_with("error: ")) return fail(Errc::invalid, "{}", out.substr(7, out.find('\n') - 7));
  return out;
}

}  // namespace twinloft::repl::control
