// A server on a Unix socket, with a target whose requests the test completes, and raw clients.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>

#include "manual_target.h"
#include "nbd_client.h"
#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/export/nbd_server.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::nbd {

class NbdServerTest : public testing::Test {
 protected:
  NbdServerTest() {
    const char* dir = std::getenv("TMPDIR");
    where = std::string(dir ? dir : "/tmp") + "/tl-nbd-XXXXXX";
    EXPECT_NE(mkdtemp(where.data()), nullptr);
    path = where + "/sock";
    auto made = io::UringLoop::create(clock);
    EXPECT_TRUE(made) << made.error().message;
    loop = std::move(*made);
    options.accepts_name = [](std::string_view name) { return name == "spool"; };
  }
  ~NbdServerTest() override {
    while (!target.waiting.empty()) target.complete_first();
    server.reset();
    std::filesystem::remove_all(where);
  }

  void start() {
    server = std::make_unique<Server>(*loop, target, options);
    auto listening = server->listen_unix(path);
    ASSERT_TRUE(listening) << listening.error().message;
  }
  template <class Predicate>
  void run_until(Predicate done) {
    while (!done()) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(100)));
  }
  // A few turns of the loop, to check that something does not happen.
  void settle() {
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop->turn(Duration::zero()));
  }

  Fd connect_raw() {
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << strerror(errno);
    return fd;
  }
  // A client after the negotiation.
  Fd connect_client(bool structured = false) {
    Fd fd = connect_raw();
    EXPECT_EQ(receive(fd, 18).size(), 18u);
    Bytes opening = client_flags();
    if (structured) opening = opening + option(Option::structured_reply);
    send(fd, opening + option(Option::export_name, text("spool")));
    receive(fd, (structured ? 20 : 0) + 10);
    return fd;
  }
  void send(const Fd& fd, const Bytes& data) {
    ByteSpan left(data);
    while (!left.empty()) {
      ssize_t n = ::send(fd.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (n > 0)
        left = left.subspan(static_cast<std::size_t>(n));
      else if (errno == EPIPE || errno == ECONNRESET)
        return;
      ASSERT_TRUE(loop->turn(n > 0 ? Duration::zero() : Duration(std::chrono::milliseconds(100))));
    }
  }
  // Exactly `count` bytes, or fewer if the connection ends first.
  Bytes receive(const Fd& fd, std::size_t count) {
    Bytes out(count);
    std::size_t have = 0;
    while (have < count) {
      ssize_t n = ::recv(fd.get(), out.data() + have, count - have, 0);
      if (n > 0) {
        have += static_cast<std::size_t>(n);
        continue;
      }
      if (n == 0 || errno != EAGAIN) break;
      EXPECT_TRUE(loop->turn(std::chrono::milliseconds(100)));
    }
    out.resize(have);
    return out;
  }
  bool at_end(const Fd& fd) { return receive(fd, 1).empty(); }
  bool silent(const Fd& fd) {
    settle();
    char c;
    return ::recv(fd.get(), &c, 1, MSG_PEEK) < 0 && errno == EAGAIN;
  }
  // The error and cookie of a simple reply.
  std::pair<std::uint32_t, std::uint64_t> reply(const Fd& fd) {
    Bytes b = receive(fd, 16);
    if (b.size() < 16) return {~0u, 0};
    EXPECT_EQ(load_be<std::uint32_t>(b.data()), simple_reply_magic);
    return {load_be<std::uint32_t>(b.data() + 4), load_be<std::uint64_t>(b.data() + 8)};
  }
  using Reply = std::pair<std::uint32_t, std::uint64_t>;

  OsClock clock;
  std::unique_ptr<io::UringLoop> loop;
  exports::ManualTarget target{64u << 20, false};
  ServerOptions options;
  std::unique_ptr<Server> server;
  std::string where, path;
};

inline Bytes pattern(std::size_t size, unsigned seed = 1) {
  Bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>((i * 31 + i / 251 + seed) & 0xff);
  return out;
}

}  // namespace twinloft::repl::nbd
