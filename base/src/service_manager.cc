#include "twinloft/base/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "twinloft/base/fd.h"

namespace twinloft {

namespace {

constexpr int first_passed = 3;  // SD_LISTEN_FDS_START

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  int value = 0;
  if (text == nullptr) return 0;
  auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  return error == std::errc() && *end == '\0' ? value : 0;
}

}  // namespace

std::vector<Fd> take_passed_sockets() {
  std::vector<Fd> out;
  int count = number_in("LISTEN_PID") == ::getpid() ? number_in("LISTEN_FDS") : 0;
  for (int fd = first_passed; fd < first_passed + count; ++fd)
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) out.emplace_back(fd);
  for (const char* variable : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(variable);
  return out;
}

bool tell_service_manager(std::string_view lines, Patience patience) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return false;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::size_t length = std::strlen(path);
  if (length >= sizeof to.sun_path) return false;
  std::memcpy(to.sun_path, path, length);
  if (to.sun_path[0] == '@')
    to.sun_path[0] = '\0';  // an abstract name, which has no terminating zero (unix(7))
  auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return false;
  // A manager that has stopped reading must not delay the service, or its end.
  timeval second{1, 0};
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
  int flags = MSG_NOSIGNAL | (patience == Patience::none ? MSG_DONTWAIT : 0);
  auto sent = ::sendto(fd.get(), lines.data(), lines.size(), flags, reinterpret_cast<sockaddr*>(&to), bytes);
  return sent == static_cast<ssize_t>(lines.size());
}

}  // namespace twinloft
