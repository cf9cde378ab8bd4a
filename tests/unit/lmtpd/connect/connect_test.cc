#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "twinloft/lmtpd/connect/connector.h"

namespace twinloft::lmtpd {
namespace {

// On loopback, at a port of the kernel's choice.
struct Listening {
  Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port = 0;
  Listening() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd.get(), 8), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
  }
};

TEST(ConnectTarget, Forms) {
  auto name = parse_connect_target("store1.example.org:24");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->host, "store1.example.org");
  EXPECT_EQ(name->port, 24);
  EXPECT_EQ(parse_connect_target("[2001:db8::1]:2400")->host, "2001:db8::1");
  EXPECT_EQ(parse_connect_target("unix:/run/x")->unix_path, "/run/x");
  for (const char* text : {"", ":24", "a", "a:", "a:0", "a:65536", "a:25", "a:24x", "2001:db8::1:24", "[a]:24", "a b:24", "a/b:24", "unix:", "unix:x"}) EXPECT_FALSE(parse_connect_target(text)) << text;
  EXPECT_FALSE(parse_connect_target("unix:/" + std::string(200, 'x')));
}

TEST(ConnectProcess, ConnectsToItsTargetsAndToNothingElse) {
  Listening here;
  auto process = ConnectProcess::start({*parse_connect_target("127.0.0.1:" + std::to_string(here.port)), *parse_connect_target("127.0.0.1:1"), *parse_connect_target("unix:/nonexistent/x")},
                                       [] { return Status(); });
  ASSERT_TRUE(process);
  auto fd = (*process)->connect(0);
  ASSERT_TRUE(fd) << fd.error().message;
  Fd theirs(::accept(here.fd.get(), nullptr, nullptr));
  ASSERT_TRUE(theirs);
  ASSERT_EQ(::send(theirs.get(), "x", 1, 0), 1);
  char byte = 0;
  ssize_t n;
  while ((n = ::recv(fd->get(), &byte, 1, 0)) < 0 && errno == EAGAIN) ::usleep(1000);
  EXPECT_EQ(n, 1);
  EXPECT_EQ(byte, 'x');

  auto refused = (*process)->connect(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unavailable);
  EXPECT_NE(refused.error().message.find("127.0.0.1:1: Connection refused"), std::string::npos) << refused.error().message;
  EXPECT_NE((*process)->connect(2).error().message.find("No such file"), std::string::npos);
  EXPECT_EQ((*process)->connect(3).error().code, Errc::denied);
}

TEST(ConnectProcess, WhatItCannotBecomeIsAnError) {
  auto process = ConnectProcess::start({*parse_connect_target("a:24")}, []() -> Status { return fail(Errc::denied, "not today"); });
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().message, "not today");
}

}  // namespace
}  // namespace twinloft::lmtpd
