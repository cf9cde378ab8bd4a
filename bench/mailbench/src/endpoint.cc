#include "twinloft/mailbench/endpoint.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace twinloft::mailbench {

namespace {

Result<Endpoint> unix_endpoint(std::string_view path) {
  Endpoint e;
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return fail(Errc::invalid, "socket path '{}': it must have 1 to {} bytes", path,
                sizeof address.sun_path - 1);
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  std::memcpy(&e.address, &address, sizeof address);
  e.length = sizeof address;
  return e;
}

}  // namespace

Result<Endpoint> Endpoint::parse(std::string_view text) {
  if (text.starts_with("unix:")) return unix_endpoint(text.substr(5));
  if (text.find('/') != text.npos) return unix_endpoint(text);
  std::size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0 || colon + 1 == text.size())
    return fail(Errc::invalid, "server '{}': write HOST:PORT, [IPv6]:PORT or the path of a Unix socket",
                text);
  std::string host = host_of(text), port(text.substr(colon + 1));
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return fail(Errc::unavailable, "server '{}': {}", text, ::gai_strerror(error));
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &::freeaddrinfo);
  Endpoint e;
  std::memcpy(&e.address, found->ai_addr, found->ai_addrlen);
  e.length = found->ai_addrlen;
  return e;
}

std::string Endpoint::host_of(std::string_view text) {
  std::size_t colon = text.rfind(':');
  if (colon == text.npos || text.starts_with("unix:") || text.find('/') != text.npos) return {};
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return std::string(host);
}

Result<Fd> Endpoint::connect() const {
  Fd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "socket");
  if (address.ss_family != AF_UNIX) {
    int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 && errno != EINPROGRESS)
    return fail_errno(errno, "connect");
  return fd;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

}  // namespace twinloft::mailbench
