// A blocking LMTP client for tests. A wait ends with the peer's bytes or the end of the connection. The
// receive timeout only turns a hang into a failure.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstring>
#include <string>
#include <string_view>

#include "twinloft/base/fd.h"

namespace twinloft::lmtpd {

class LmtpClient {
 public:
  explicit LmtpClient(std::uint16_t port) : LmtpClient(unconnected()) { connect_to(port); }
  static LmtpClient unconnected() { return LmtpClient(Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))); }
  void connect_to(std::uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(&to, sizeof to);
  }
  explicit LmtpClient(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, path.c_str(), sizeof to.sun_path - 1);
    connect(&to, sizeof to);
  }

  void send(std::string_view text) { ASSERT_TRUE(write_all(fd_.get(), as_bytes(text))); }
  // Returns false if the connection has ended.
  bool try_send(std::string_view text) { return write_all(fd_.get(), as_bytes(text)).has_value(); }
  // Sends each byte in its own segment, if the kernel does not join segments.
  void trickle(std::string_view text) {
    for (char c : text) send(std::string_view(&c, 1));
  }

  // Returns one reply, with "|" between its lines and without line ends. "": the connection has ended.
  std::string reply() {
    std::string out;
    for (;;) {
      std::string line = read_line();
      if (line.empty()) return out;
      bool last = line.size() < 4 || line[3] != '-';
      out += (out.empty() ? "" : "|") + line;
      if (last) return out;
    }
  }
  std::string ask(std::string_view text) {
    send(text);
    return reply();
  }
  bool at_end() { return reply().empty(); }
  int fd() const { return fd_.get(); }
  void hang_up() { fd_.reset(); }
  void finish_sending() { ::shutdown(fd_.get(), SHUT_WR); }

  // Reads the greeting and sends LHLO.
  void begin() {
    ASSERT_EQ(reply().substr(0, 4), "220 ");
    ASSERT_EQ(ask("LHLO client.example.org\r\n").substr(0, 4), "250-");
  }
  // All commands up to DATA and its 354. The recipients must be accepted.
  void envelope(std::initializer_list<std::string_view> recipients) {
    ASSERT_EQ(ask("MAIL FROM:<from@example.org>\r\n").substr(0, 3), "250");
    for (std::string_view to : recipients)
      ASSERT_EQ(ask("RCPT TO:<" + std::string(to) + ">\r\n").substr(0, 3), "250") << to;
    ASSERT_EQ(ask("DATA\r\n").substr(0, 3), "354");
  }

 private:
  explicit LmtpClient(Fd fd) : fd_(std::move(fd)) {}
  void connect(const void* to, socklen_t length) {
    timeval limit{60, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    EXPECT_EQ(::connect(fd_.get(), static_cast<const sockaddr*>(to), length), 0) << std::strerror(errno);
  }

  std::string read_line() {
    for (;;) {
      std::size_t end = buffer_.find("\r\n");
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 2);
        return line;
      }
      char piece[4096];
      ssize_t got = ::recv(fd_.get(), piece, sizeof piece, 0);
      if (got < 0) {
        EXPECT_EQ(errno, ECONNRESET) << "no data for a minute";
      }
      if (got <= 0) return {};
      buffer_.append(piece, static_cast<std::size_t>(got));
    }
  }

  Fd fd_;
  std::string buffer_;
};

}  // namespace twinloft::lmtpd
