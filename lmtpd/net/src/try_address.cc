#include "twinloft/lmtpd/net/try_address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "twinloft/base/fd.h"

namespace twinloft::lmtpd {

namespace {

Result<AddressState> try_unix(const std::string& path) {
  std::string directory = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
  struct stat about{};
  if (::stat(directory.c_str(), &about) != 0)
    return fail_errno(errno, "{}, the directory of the socket {}", directory, path);
  if (!S_ISDIR(about.st_mode))
    return fail(Errc::invalid, "{}, the directory of the socket {}, is not a directory", directory, path);
  if (::lstat(path.c_str(), &about) != 0) return AddressState::free;
  if (!S_ISSOCK(about.st_mode))
    return fail(Errc::conflict, "{} exists and is not a socket: choose another path, or remove it", path);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path)
    return fail(Errc::invalid, "{}: a Unix socket's path has at most {} bytes", path, sizeof to.sun_path - 1);
  std::memcpy(to.sun_path, path.data(), path.size());
  Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return fail_errno(errno, "socket");
  bool answers = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ||
                 errno == EAGAIN;
  return answers ? AddressState::in_use : AddressState::free;
}

template <class Address>
Result<AddressState> try_tcp(const Address& to, const std::string& name) {
  const auto* address = reinterpret_cast<const sockaddr*>(&to);
  Fd probe(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe) return fail_errno(errno, "{}: socket", name);
  int on = 1;
  (void)::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6)
    (void)::setsockopt(probe.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(probe.get(), address, sizeof to) == 0) return AddressState::free;
  if (errno == EADDRINUSE) return AddressState::in_use;
  if (errno == EADDRNOTAVAIL) return fail(Errc::invalid, "{}: this machine has no such address", name);
  return fail_errno(errno, "cannot listen on {}", name);
}

}  // namespace

Result<AddressState> try_address(const ListenAddress& address) {
  if (!address.unix_path.empty()) return try_unix(address.unix_path);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(address.port);
  if (::inet_pton(AF_INET, address.host.c_str(), &v4.sin_addr) == 1) return try_tcp(v4, address.name);
  TL_TRY_ASSIGN(sockaddr_in6 v6, ipv6_address(address));
  return try_tcp(v6, address.name);
}

Result<sockaddr_in6> ipv6_address(const ListenAddress& address) {
  sockaddr_in6 out{};
  out.sin6_family = AF_INET6;
  out.sin6_port = htons(address.port);
  std::size_t percent = std::min(address.host.find('%'), address.host.size());
  if (::inet_pton(AF_INET6, address.host.substr(0, percent).c_str(), &out.sin6_addr) != 1)
    return fail(Errc::invalid, "{}: {} is not a numeric address", address.name, address.host);
  if (percent == address.host.size()) return out;
  std::string interface = address.host.substr(percent + 1);
  out.sin6_scope_id = ::if_nametoindex(interface.c_str());
  if (out.sin6_scope_id == 0)
    return fail(Errc::invalid, "{}: this machine has no network interface \"{}\"", address.name, interface);
  return out;
}

}  // namespace twinloft::lmtpd
