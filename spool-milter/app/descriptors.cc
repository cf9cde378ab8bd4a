#include "descriptors.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

namespace twinloft::spool_milter {

namespace {

bool listens(int socket) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) == 0 && value;
}

// In the byte order of the network. Both families have the port at the same place.
in_port_t port_of(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in*>(&address)->sin_port;
}

}  // namespace

Result<SocketName> SocketName::of(int socket) {
  SocketName out;
  out.size_ = sizeof out.address_;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&out.address_), &out.size_) != 0)
    return fail_errno(errno, "getsockname");
  struct stat found{};
  if (::fstat(socket, &found) != 0) return fail_errno(errno, "fstat");
  out.inode_ = found.st_ino;
  return out;
}

bool SocketName::is_beside(const SocketName& other) const {
  if (inode_ == other.inode_) return false;
  if (address_.ss_family == AF_UNIX && other.address_.ss_family == AF_UNIX)
    return size_ > sizeof address_.ss_family && size_ == other.size_ &&
           std::memcmp(&address_, &other.address_, size_) == 0;
  const auto is_inet = [](const SocketName& n) {
    return n.address_.ss_family == AF_INET || n.address_.ss_family == AF_INET6;
  };
  return is_inet(*this) && is_inet(other) && port_of(address_) != 0 &&
         port_of(address_) == port_of(other.address_);
}

Status Descriptors::open() {
  directory_.reset(::opendir("/proc/self/fd"));
  if (!directory_) return fail_errno(errno, "/proc/self/fd");
  return {};
}

template <class See>
bool Descriptors::each(See see) const {
  ::rewinddir(directory_.get());
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory_.get());
    if (!entry) return errno == 0;
    const std::string_view name = entry->d_name;
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec == std::errc()) see(fd);
  }
}

std::set<int> Descriptors::listening() const {
  std::set<int> out;
  (void)each([&](int fd) {
    if (listens(fd)) out.insert(fd);
  });
  return out;
}

std::size_t Descriptors::accepted(const SocketName& name) const {
  std::size_t out = 0;
  const bool complete = each([&](int fd) {
    if (listens(fd)) return;
    if (auto own = SocketName::of(fd); own && own->is_beside(name)) ++out;
  });
  return complete ? out : out + 1;
}

}  // namespace twinloft::spool_milter
