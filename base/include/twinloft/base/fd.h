// The owner of a file descriptor, and reading and writing whole buffers.
#pragma once

#include <string>
#include <utility>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft {

// Owns a file descriptor, or none (-1), and closes it.
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

// Both continue after EINTR and after short counts. Errors: those of write(2) and read(2). read_exact also
// fails with Errc::corrupt at an early end of file.
Status write_all(int fd, ByteSpan data);
Status read_exact(int fd, MutableByteSpan data);
// Two connected sockets for packets (AF_UNIX, SOCK_SEQPACKET, close-on-exec).
struct SocketPair {
  Fd ours, theirs;
};
Result<SocketPair> make_socket_pair();
// The content of the file. Errors: those of open(2) and read(2), or Errc::exhausted if the file is longer
// than `limit` bytes.
Result<std::string> read_file(const std::string& path, std::size_t limit);

}  // namespace twinloft
