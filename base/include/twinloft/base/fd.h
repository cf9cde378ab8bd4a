// Owner of a file descriptor, and loops around read and write.
#pragma once

#include <string>
#include <utility>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Both repeat on EINTR and on short counts. read_exact fails with Errc::corrupt on an early end of file.
Status write_all(int fd, ByteSpan data);
Status read_exact(int fd, MutableByteSpan data);
// Two connected sockets for packets (AF_UNIX, SOCK_SEQPACKET), closed at an exec.
struct SocketPair {
  Fd ours, theirs;
};
Result<SocketPair> make_socket_pair();
// The whole file, refused with Errc::exhausted beyond `limit` bytes.
Result<std::string> read_file(const std::string& path, std::size_t limit);

}  // namespace twinloft
