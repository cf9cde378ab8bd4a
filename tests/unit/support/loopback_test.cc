#include "loopback.h"

#include <gtest/gtest.h>

#include <atomic>

namespace twinloft::loopback {
namespace {

using Clients = Server::Clients;

Fd connected(std::uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(port);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) fd.reset();
  return fd;
}

void echo_lines(int fd) {
  LineReader lines(fd);
  while (auto line = lines.next()) send_all(fd, *line + "\r\n", 1);
}

TEST(LoopbackServer, ServesClientsSideBySide) {
  Server server(Clients::side_by_side, echo_lines);
  Fd a = connected(server.port()), b = connected(server.port());
  LineReader from_a(a.get()), from_b(b.get());
  ASSERT_TRUE(send_all(a.get(), "one\r\ntwo\r\n") && send_all(b.get(), "\r\n"));
  EXPECT_EQ(from_b.next(), "");
  EXPECT_EQ(from_a.next(), "one");
  EXPECT_EQ(from_a.next(), "two");
  EXPECT_EQ(server.connections(), 2u);
  EXPECT_EQ(server.address(), "127.0.0.1:" + std::to_string(server.port()));
}

TEST(LoopbackServer, ServesTheNextClientAfterTheOneBefore) {
  std::atomic<int> at_once = 0, most = 0;
  Server server(Clients::one_at_a_time, [&](int fd) {
    int now = ++at_once;
    if (now > most) most = now;
    echo_lines(fd);
    --at_once;
  });
  Fd a = connected(server.port()), b = connected(server.port());
  LineReader from_a(a.get()), from_b(b.get());
  ASSERT_TRUE(send_all(b.get(), "b\r\n") && send_all(a.get(), "a\r\n"));
  EXPECT_EQ(from_a.next(), "a");
  a.reset();
  EXPECT_EQ(from_b.next(), "b");
  EXPECT_EQ(most, 1);
}

// Connected, silent clients delay nothing, whether served or queued.
TEST(LoopbackServer, EndsWithOpenConnections) {
  for (Clients clients : {Clients::one_at_a_time, Clients::side_by_side}) {
    Fd a, b;
    {
      Server server(clients, wait_until_client_has_gone);
      a = connected(server.port());
      b = connected(server.port());
      ASSERT_TRUE(a && b);
    }
    char byte;
    EXPECT_LE(::recv(a.get(), &byte, 1, 0), 0);
    EXPECT_LE(::recv(b.get(), &byte, 1, 0), 0);
  }
}

TEST(LoopbackServer, AClosedPortRefuses) {
  EXPECT_FALSE(connected(closed_port()));
}

TEST(LineReader, ALineWithoutItsEndIsNone) {
  Server server(Clients::one_at_a_time, [](int fd) { send_all(fd, "whole\r\nhalf"); });
  Fd fd = connected(server.port());
  LineReader lines(fd.get());
  EXPECT_EQ(lines.next(), "whole");
  EXPECT_EQ(lines.next(), std::nullopt);
}

}  // namespace
}  // namespace twinloft::loopback
