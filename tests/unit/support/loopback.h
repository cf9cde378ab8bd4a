// TCP servers on 127.0.0.1 within a test's process. The fake servers of all folders use them.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/base/fd.h"

namespace twinloft::loopback {

// A listening socket at a free port, which the kernel chooses. The port is in host byte order.
struct Listening {
  Fd fd;
  std::uint16_t port = 0;
  std::string address() const { return "127.0.0.1:" + std::to_string(port); }
};

// backlog: as for listen(2).
inline Listening listen(int backlog = 128) {
  Listening out{Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  TL_CHECK(::bind(out.fd.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
  TL_CHECK(::listen(out.fd.get(), backlog) == 0);
  TL_CHECK(::getsockname(out.fd.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  out.port = ntohs(at.sin_port);
  return out;
}

// A port of 127.0.0.1 at which no program listens.
inline std::uint16_t closed_port() {
  return listen().port;
}

// Sends all bytes, in pieces of `piece` bytes, or at once with 0. False: the client has disconnected.
inline bool send_all(int fd, std::string_view bytes, std::size_t piece = 0) {
  while (!bytes.empty()) {
    ssize_t n = ::send(fd, bytes.data(), piece ? std::min(piece, bytes.size()) : bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

// Discards the input until the client closes the connection, or the server is destroyed.
inline void wait_until_client_has_gone(int fd) {
  char scratch[512];
  while (::recv(fd, scratch, sizeof scratch, 0) > 0) {
  }
}

// Reads lines that end in CRLF, and counted bytes.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}
  // The next line without CRLF. Nothing: the connection has ended.
  std::optional<std::string> next() {
    for (;;) {
      if (std::size_t end = buffer_.find("\r\n", at_); end != buffer_.npos) {
        std::string line = buffer_.substr(at_, end - at_);
        at_ = end + 2;
        return line;
      }
      buffer_.erase(0, std::exchange(at_, 0));
      char chunk[65536];
      ssize_t n = ::recv(fd_, chunk, sizeof chunk, 0);
      if (n <= 0) return {};
      buffer_.append(chunk, static_cast<std::size_t>(n));
    }
  }
  // Nothing: the connection has ended.
  std::optional<std::string> bytes(std::size_t count) {
    while (buffer_.size() - at_ < count) {
      char chunk[65536];
      ssize_t n = ::recv(fd_, chunk, sizeof chunk, 0);
      if (n <= 0) return {};
      buffer_.append(chunk, static_cast<std::size_t>(n));
    }
    std::string out = buffer_.substr(at_, count);
    at_ += count;
    return out;
  }

 private:
  int fd_;
  std::string buffer_;
  std::size_t at_ = 0;
};

// Calls `serve` with the descriptor of each connection, in threads of the server. The connection is closed
// when `serve` returns. The destructor shuts all connections down, and waits for the threads. A fake server
// has it as its last member, so that it ends before the members that `serve` uses.
class Server {
 public:
  enum class Clients { one_at_a_time, side_by_side };
  using Serve = std::function<void(int fd)>;

  Server(Clients clients, Serve serve)
      : clients_(clients),
        serve_(std::move(serve)),
        listening_(listen()),
        acceptor_([this] { accept_all(); }) {}
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
      ::shutdown(listening_.fd.get(), SHUT_RDWR);
      for (int fd : open_) ::shutdown(fd, SHUT_RDWR);
    }
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
  }

  std::uint16_t port() const { return listening_.port; }
  std::string address() const { return listening_.address(); }
  // The number of connections so far.
  std::size_t connections() const {
    std::lock_guard lock(mutex_);
    return connections_;
  }

 private:
  void accept_all() {
    for (;;) {
      Fd fd(::accept4(listening_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::unique_lock lock(mutex_);
      if (ending_) return;
      if (!fd) continue;  // a signal, or the client has disconnected
      int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ++connections_;
      open_.push_back(fd.get());
      if (clients_ == Clients::side_by_side) {
        threads_.emplace_back([this, own = std::move(fd)]() mutable { run(std::move(own)); });
      } else {
        lock.unlock();
        run(std::move(fd));
      }
    }
  }

  void run(Fd fd) {
    serve_(fd.get());
    std::lock_guard lock(mutex_);
    std::erase(open_, fd.get());
    fd.reset();  // under the lock: the number is not used again while it is in open_
  }

  Clients clients_;
  Serve serve_;
  Listening listening_;
  mutable std::mutex mutex_;
  std::vector<int> open_;             // guarded by mutex_
  std::vector<std::thread> threads_;  // of the acceptor
  std::size_t connections_ = 0;       // guarded by mutex_
  bool ending_ = false;               // guarded by mutex_
  std::thread acceptor_;
};

}  // namespace twinloft::loopback
