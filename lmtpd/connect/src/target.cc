#include "twinloft/lmtpd/connect/target.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <memory>

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t host_bytes_max = 255;
constexpr std::uint16_t smtp_port = 25;  // RFC 2033 section 5: LMTP must not be spoken there

bool is_host_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == ':' || c == '%';
}

Status finish_connect(int fd, std::chrono::milliseconds timeout) {
  pollfd wait{fd, POLLOUT, 0};
  int ready;
  do {
    ready = ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(timeout.count(), INT_MAX)));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return fail(Errc::timeout, "no answer within {} ms", timeout.count());
  int error = 0;
  socklen_t size = sizeof error;
  if (ready < 0 || ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return fail(Errc::unavailable, "{}", std::strerror(error));
  return {};
}

Result<Fd> connect_to_address(int family, const sockaddr* address, socklen_t size,
                              std::chrono::milliseconds timeout) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno(errno, "socket");
  int yes = 1;
  if (family != AF_UNIX) {
    (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  }
  if (::connect(fd.get(), address, size) == 0) return fd;
  // A Unix socket with a full queue fails with EAGAIN, and no event shows that it has room again.
  if (errno != EINPROGRESS) return fail(Errc::unavailable, "{}", std::strerror(errno));
  TL_TRY(finish_connect(fd.get(), timeout));
  return fd;
}

Result<Fd> connect_to_path(const ConnectTarget& target) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (target.unix_path.size() >= sizeof address.sun_path) return fail(Errc::invalid, "the path is too long");
  std::copy(target.unix_path.begin(), target.unix_path.end(), address.sun_path);
  return connect_to_address(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address,
                            target.timeout);
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// The addresses that have not been tried share the time, so that a silent address does not use all of it.
Result<Fd> connect_to_one_of(const addrinfo* list, std::chrono::steady_clock::time_point deadline) {
  Result<Fd> last = fail(Errc::unavailable, "the name has no address");
  int left = 0;
  for (const addrinfo* at = list; at; at = at->ai_next) ++left;
  for (const addrinfo* at = list; at; at = at->ai_next, --left) {
    auto time = std::chrono::duration_cast<std::chrono::milliseconds>(deadline -
                                                                      std::chrono::steady_clock::now()) /
                left;
    if (time.count() <= 0) return fail(Errc::timeout, "no address has answered in time");
    last = connect_to_address(at->ai_family, at->ai_addr, at->ai_addrlen, time);
    if (last) break;
  }
  return last;
}

Result<Fd> connect_to_host(const ConnectTarget& target) {
  const auto deadline = std::chrono::steady_clock::now() + target.timeout;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  std::string port = std::to_string(target.port);
  if (int wrong = ::getaddrinfo(target.host.c_str(), port.c_str(), &hints, &list); wrong != 0)
    return fail(Errc::unavailable, "{}", wrong == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(wrong));
  std::unique_ptr<addrinfo, FreeAddresses> owner(list);
  if (std::chrono::steady_clock::now() >= deadline)
    return fail(Errc::timeout, "its name was not resolved within {} ms", target.timeout.count());
  return connect_to_one_of(list, deadline);
}

}  // namespace

Result<ConnectTarget> parse_connect_target(std::string_view text) {
  ConnectTarget out;
  out.text = text;
  if (text.starts_with("unix:")) {
    out.unix_path = text.substr(5);
    if (out.unix_path.empty() || out.unix_path[0] != '/')
      return fail(Errc::invalid, "expected an absolute path after \"unix:\"");
    if (out.unix_path.size() >= sizeof(sockaddr_un::sun_path) ||
        out.unix_path.find('\0') != std::string::npos)
      return fail(Errc::invalid, "the path has {} bytes; a Unix socket's may have {}", out.unix_path.size(),
                  sizeof(sockaddr_un::sun_path) - 1);
    return out;
  }
  std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0)
    return fail(Errc::invalid,
                "expected \"10.0.0.1:2400\", \"[::1]:2400\", \"store1.example.org:2400\" or \"unix:/path\"");
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.size() > host_bytes_max || !std::all_of(host.begin(), host.end(), is_host_byte) ||
      bracketed != (host.find(':') != std::string_view::npos))
    return fail(Errc::invalid,
                "expected a host name or a numeric address before the port, such as store1.example.org, "
                "10.0.0.1 or [::1]");
  out.host = host;
  auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (code != std::errc() || end != port.data() + port.size() || out.port == 0)
    return fail(Errc::invalid, "expected a port from 1 to 65535 after the colon");
  if (out.port == smtp_port)
    return fail(Errc::invalid, "port 25 is reserved for SMTP (RFC 2033): use 24 or 2400");
  return out;
}

Result<Fd> connect_to(const ConnectTarget& target) {
  Result<Fd> fd = target.unix_path.empty() ? connect_to_host(target) : connect_to_path(target);
  if (!fd) return fail(fd.error().code, "{}: {}", target.text, fd.error().message);
  return fd;
}

}  // namespace twinloft::lmtpd
