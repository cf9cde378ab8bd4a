#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "answer.h"
#include "twinloft/spool-repl/control/control.h"

namespace twinloft::repl::control {

namespace {

// If the server has closed the connection already, its answer is still read, since it may contain the reason.
Status send_command(int fd, const std::string& path, std::string_view line) {
  while (!line.empty()) {
    ssize_t n = ::send(fd, line.data(), line.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return {};
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return fail(Errc::timeout, "{}: the server process did not read the command in time", path);
    if (n < 0) return fail_errno(errno, "{}", path);
    line.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

std::unexpected<Error> not_connected(int sys, const std::string& path) {
  if (sys == EACCES || sys == EPERM)
    return fail(Errc::denied, "{}: not allowed for this user: ask as root, or name a group in `status_group`",
                path);
  if (sys == EAGAIN || sys == EWOULDBLOCK)
    return fail(Errc::timeout, "{}: the server process did not accept the connection in time", path);
  auto error = fail_errno(sys, "no answer at {} (is spool-repl serving this volume?)", path);
  error.error().code = Errc::unavailable;
  return error;
}

}  // namespace

Result<std::string> ask(const std::string& path, const std::string& command, Duration timeout) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(Errc::invalid, "{}: path too long for a socket", path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "socket");
  auto us = std::chrono::duration_cast<std::chrono::microseconds>(timeout).count();
  timeval tv{us / 1'000'000, us % 1'000'000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0)
    return not_connected(errno, path);
  TL_TRY(send_command(fd.get(), path, command + "\n"));
  std::string out;
  char buffer[4096];
  for (;;) {
    ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return fail(Errc::timeout, "{}: no answer in time", path);
    if (n == 0 || (n < 0 && errno == ECONNRESET))
      break;  // the last line shows whether the answer is complete
    if (n < 0) return fail_errno(errno, "{}", path);
    out.append(buffer, static_cast<std::size_t>(n));
  }
  return decode_answer(std::move(out));
}

}  // namespace twinloft::repl::control
