#include "twinloft/lmtpd/net/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "twinloft/lmtpd/net/try_address.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::uint16_t smtp_port = 25;
constexpr int backlog = 1024;

Result<Fd> make_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno(errno, "socket");
  return fd;
}

struct TcpAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family = AF_INET;
};

Status make_tcp_address(const ListenAddress& address, TcpAddress& out) {
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (::inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    out.length = sizeof *v4;
    return {};
  }
  TL_TRY_ASSIGN(*v6, ipv6_address(address));
  out.length = sizeof *v6;
  out.family = AF_INET6;
  return {};
}

std::uint16_t port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

bool make_unix_address(const std::string& path, sockaddr_un& out) {
  out = {};
  out.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof out.sun_path) return false;
  std::memcpy(out.sun_path, path.data(), path.size());
  return true;
}

// Removes a socket without a server. Any other file at the path stays, and is an error.
Status clear_stale(const std::string& path, const sockaddr_un& address) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return {};
    return fail_errno(errno, "{}", path);
  }
  if (!S_ISSOCK(found.st_mode))
    return fail(Errc::conflict, "{} exists and is not a socket: choose another path, or remove it", path);
  TL_TRY_ASSIGN(Fd probe, make_socket(AF_UNIX));
  int connected = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (connected == 0 || errno == EAGAIN)
    return fail(Errc::unavailable, "another server answers at {}: stop it, or choose another path", path);
  if (errno != ECONNREFUSED)
    return fail_errno(errno, "{}: cannot find out whether a server listens there", path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "{}: cannot be removed", path);
  return {};
}

// Two servers that start at the same time must not both find the socket stale. The lock is held until the
// socket is bound.
Result<Fd> lock_directory_of(const std::string& path) {
  std::string directory = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
  Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "{}, the directory of the socket {}", directory, path);
  // Any process that can read the directory can hold this lock forever, so the wait is limited.
  for (int tries = 0; tries < 20; ++tries) {
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
    if (errno != EWOULDBLOCK) return fail_errno(errno, "{}: lock", directory);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return fail(Errc::unavailable,
              "{}: another program holds a lock on this directory: no socket can be created in it",
              directory);
}

}  // namespace

Result<Listener> Listener::bind(const ListenAddress& address) {
  auto bound = address.unix_path.empty() ? bind_tcp(address) : bind_unix(address);
  if (bound) bound->rules_ = std::make_shared<ListenRules>(address.rules);
  return bound;
}

namespace {

bool listens_at(int fd, const ListenAddress& address) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return false;
  if (!address.unix_path.empty())
    return bound.ss_family == AF_UNIX &&
           address.unix_path == reinterpret_cast<const sockaddr_un&>(bound).sun_path;
  TcpAddress wanted;
  if (!make_tcp_address(address, wanted) || bound.ss_family != wanted.family || port_of(fd) != address.port)
    return false;
  if (wanted.family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(bound).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(wanted.storage).sin_addr.s_addr;
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(bound).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(wanted.storage).sin6_addr, sizeof(in6_addr)) == 0;
}

int option_of(int fd, int option) {
  int value = 0;
  socklen_t length = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

}  // namespace

Result<std::optional<Listener>> Listener::adopt(const ListenAddress& address, std::vector<Fd>& passed) {
  auto found = std::find_if(passed.begin(), passed.end(),
                            [&](const Fd& fd) { return listens_at(fd.get(), address); });
  if (found == passed.end()) return std::nullopt;
  Listener out;
  out.name_ = address.name;
  out.fd_ = std::move(*found);
  out.shared_ = true;
  passed.erase(found);
  out.is_unix_ = !address.unix_path.empty();
  out.adopted_path_ = address.unix_path;
  out.rules_ = std::make_shared<ListenRules>(address.rules);
  if (option_of(out.fd(), SO_TYPE) != SOCK_STREAM || option_of(out.fd(), SO_ACCEPTCONN) != 1)
    return fail(Errc::invalid,
                "{}: the service manager has passed a socket that does not listen for connections "
                "(ListenStream=, Accept=no)",
                address.name);
  int flags = ::fcntl(out.fd(), F_GETFL);
  if (flags < 0 || ::fcntl(out.fd(), F_SETFL, flags | O_NONBLOCK) != 0)
    return fail_errno(errno, "{}", address.name);
  if (!out.is_unix_) out.port_ = port_of(out.fd());
  return out;
}

Result<Listener> Listener::bind_tcp(const ListenAddress& address) {
  if (address.port == smtp_port)
    return fail(Errc::invalid, "{}: port 25 is reserved for SMTP: use another port for LMTP (RFC 2033)",
                address.name);
  TcpAddress to;
  TL_TRY(make_tcp_address(address, to));
  Listener out;
  out.name_ = address.name;
  TL_TRY_ASSIGN(out.fd_, make_socket(to.family));
  int on = 1;
  (void)::setsockopt(out.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (to.family == AF_INET6) (void)::setsockopt(out.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(out.fd(), reinterpret_cast<const sockaddr*>(&to.storage), to.length) != 0 ||
      ::listen(out.fd(), backlog) != 0) {
    int error = errno;
    if (error == EADDRINUSE)
      return fail(Errc::unavailable, "{} is in use by another program: stop it, or listen elsewhere",
                  address.name);
    return fail_errno(error, "cannot listen on {}", address.name);
  }
  out.port_ = port_of(out.fd());
  return out;
}

Result<Listener> Listener::bind_unix(const ListenAddress& address) {
  sockaddr_un to;
  if (!make_unix_address(address.unix_path, to))
    return fail(Errc::invalid, "{}: a Unix socket's path has at most {} bytes", address.name,
                sizeof to.sun_path - 1);
  TL_TRY_ASSIGN(Fd lock, lock_directory_of(address.unix_path));
  TL_TRY(clear_stale(address.unix_path, to));
  Listener out;
  out.name_ = address.name;
  TL_TRY_ASSIGN(out.fd_, make_socket(AF_UNIX));
  if (::bind(out.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    return fail_errno(errno, "cannot listen on {}", address.name);
  out.path_ = address.unix_path;
  out.is_unix_ = true;
  struct stat made{};
  if (::lstat(address.unix_path.c_str(), &made) == 0) {
    out.device_ = made.st_dev;
    out.inode_ = made.st_ino;
  }
  // Before listen() no client can connect, so the mode given by the umask is never in effect.
  TL_TRY(out.set_access(address.mode, address.gid));
  if (::listen(out.fd(), backlog) != 0) return fail_errno(errno, "cannot listen on {}", address.name);
  return out;
}

bool Listener::has_path() const {
  if (path_.empty() || !fd_) return false;
  struct stat found{};
  return ::lstat(path_.c_str(), &found) == 0 && found.st_dev == device_ && found.st_ino == inode_;
}

bool Listener::has_lost_path() const {
  struct stat found{};
  if (!path_.empty()) return fd_ && !has_path();
  return !adopted_path_.empty() && (::lstat(adopted_path_.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode));
}

// Changes this socket only, not a file that has replaced it at its path. The group comes first: with the mode
// first, the old group would have access for a moment.
Status Listener::set_access(unsigned mode, std::optional<std::uint32_t> gid) {
  if (path_.empty() || !fd_) return {};
  Fd at(::open(path_.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat found{};
  if (!at || ::fstat(at.get(), &found) != 0 || found.st_dev != device_ || found.st_ino != inode_) return {};
  if (gid && ::fchownat(at.get(), "", static_cast<uid_t>(-1), *gid, AT_EMPTY_PATH) != 0)
    return fail_errno(errno, "{}: its group cannot be set", name_);
  // An O_PATH descriptor can be changed only by its name in /proc.
  if (::chmod(fmt::format("/proc/self/fd/{}", at.get()).c_str(), mode) != 0)
    return fail_errno(errno, "{}: its mode cannot be set", name_);
  return {};
}

// After shutdown(2), a TCP socket no longer reports SO_ACCEPTCONN. A Unix socket still reports it, and also
// POLLHUP.
bool Listener::is_listening() const {
  pollfd about{fd(), 0, 0};
  return option_of(fd(), SO_ACCEPTCONN) == 1 && (::poll(&about, 1, 0) == 0 || (about.revents & POLLHUP) == 0);
}

Listener Listener::inherit(const ListenRules& rules) const {
  Listener out;
  out.name_ = name_;
  out.rules_ = std::make_shared<ListenRules>(rules);
  out.fd_.reset(::fcntl(fd(), F_DUPFD_CLOEXEC, 0));
  // Another process with the same socket may have cleared the flag.
  (void)::fcntl(fd(), F_SETFL, ::fcntl(fd(), F_GETFL) | O_NONBLOCK);
  out.port_ = port_;
  out.is_unix_ = is_unix_;
  out.shared_ = true;
  return out;
}

void Listener::close() {
  remove_path();
  if (fd_ && !shared_) ::shutdown(fd(), SHUT_RDWR);
  fd_.reset();
}

void Listener::remove_path() {
  if (has_path())
    (void)::unlink(path_.c_str());  // may fail without privileges; the next start then replaces the file
}

}  // namespace twinloft::lmtpd
