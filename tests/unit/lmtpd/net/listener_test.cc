#include "twinloft/lmtpd/net/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "../../support/temporary_directory.h"
#include "lmtp_client.h"

namespace twinloft::lmtpd {
namespace {

ListenAddress tcp(std::uint16_t port) {
  return {"127.0.0.1:" + std::to_string(port), "127.0.0.1", port, "", 0};
}
ListenAddress unix_at(const std::string& path) {
  return {"unix:" + path, "", 0, path, 0666};
}

// Leaves a socket behind, as a killed server does.
void leave_socket(const std::string& path) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

bool exists(const std::string& path) {
  struct stat found{};
  return ::lstat(path.c_str(), &found) == 0;
}

TEST(Listener, Port25IsRefused) {
  auto listener = Listener::bind(tcp(25));
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code, Errc::invalid);
}

TEST(Listener, APortInUseIsNamed) {
  auto first = Listener::bind(tcp(0));
  ASSERT_TRUE(first) << first.error().message;
  auto second = Listener::bind(tcp(first->port()));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::unavailable) << "the error may be temporary";
  EXPECT_NE(second.error().message.find("127.0.0.1:" + std::to_string(first->port())), std::string::npos);
}

TEST(Listener, TheSocketGetsItsModeAndGroup) {
  TemporaryDirectory dir;
  ListenAddress address = unix_at(dir / "s");
  address.mode = 0620;
  address.gid = 4242;
  auto listener = Listener::bind(address);
  ASSERT_TRUE(listener) << listener.error().message;
  struct stat found{};
  ASSERT_EQ(::lstat(address.unix_path.c_str(), &found), 0);
  EXPECT_EQ(found.st_gid, 4242u);
  EXPECT_EQ(found.st_mode & 07777, 0620u);
}

// As docs/lmtpd.md says: owner and group are those of the starting process, and no other user may connect.
TEST(Listener, ASocketsDefaultsLetInOwnerAndGroupOnly) {
  TemporaryDirectory dir;
  mode_t before = ::umask(0);
  auto listener = Listener::bind({.name = "s", .host = "", .unix_path = dir / "s"});
  ::umask(before);
  ASSERT_TRUE(listener) << listener.error().message;
  struct stat found{};
  ASSERT_EQ(::lstat((dir / "s").c_str(), &found), 0);
  EXPECT_EQ(found.st_uid, ::geteuid());
  EXPECT_EQ(found.st_gid, ::getegid());
  EXPECT_EQ(found.st_mode & 07777, 0660u);
}

TEST(Listener, AStaleSocketIsReplacedAndRemovedAtTheEnd) {
  TemporaryDirectory dir;
  leave_socket(dir / "s");
  {
    auto listener = Listener::bind(unix_at(dir / "s"));
    ASSERT_TRUE(listener) << listener.error().message;
    struct stat found{};
    ASSERT_EQ(::stat((dir / "s").c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0666u);
  }
  EXPECT_FALSE(exists(dir / "s"));
}

// Sockets that a service manager has opened.
class Adopting : public testing::Test {
 protected:
  // Both sockets listen, in this order. `port_` is the port of the TCP socket.
  std::vector<Fd> passed() {
    std::vector<Fd> out;
    out.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    std::strncpy(local.sun_path, path().c_str(), sizeof local.sun_path - 1);
    EXPECT_EQ(::bind(out[0].get(), reinterpret_cast<sockaddr*>(&local), sizeof local), 0);
    out.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof any;
    EXPECT_EQ(::bind(out[1].get(), reinterpret_cast<sockaddr*>(&any), length), 0);
    EXPECT_EQ(::getsockname(out[1].get(), reinterpret_cast<sockaddr*>(&any), &length), 0);
    port_ = ntohs(any.sin_port);
    for (Fd& fd : out) EXPECT_EQ(::listen(fd.get(), 5), 0);
    return out;
  }
  std::string path() const { return dir_ / "lmtp"; }

  TemporaryDirectory dir_;
  std::uint16_t port_ = 0;
};

TEST_F(Adopting, WhatListensThereAlreadyIsTaken) {
  std::vector<Fd> fds = passed();
  int of_unix = fds[0].get(), of_tcp = fds[1].get();
  {
    auto over_tcp = Listener::adopt(tcp(port_), fds);
    ASSERT_TRUE(over_tcp && *over_tcp);
    EXPECT_EQ((*over_tcp)->fd(), of_tcp);
    EXPECT_EQ((*over_tcp)->port(), port_);
    EXPECT_FALSE((*over_tcp)->is_unix());
    EXPECT_EQ(::fcntl(of_tcp, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    auto local = Listener::adopt(unix_at(path()), fds);
    ASSERT_TRUE(local && *local);
    EXPECT_EQ((*local)->fd(), of_unix);
    EXPECT_TRUE((*local)->is_unix());
    EXPECT_TRUE(fds.empty());
  }
  EXPECT_TRUE(exists(path())) << "the path belongs to the service manager";
}

TEST_F(Adopting, APathThatIsGoneIsNoticed) {
  std::vector<Fd> fds = passed();
  auto local = Listener::adopt(unix_at(path()), fds);
  auto over_tcp = Listener::adopt(tcp(port_), fds);
  ASSERT_TRUE(local && *local && over_tcp && *over_tcp);
  EXPECT_TRUE((*local)->is_adopted());
  EXPECT_FALSE((*local)->has_lost_path());
  ASSERT_EQ(::unlink(path().c_str()), 0);
  EXPECT_TRUE((*local)->has_lost_path());
  EXPECT_FALSE((*over_tcp)->has_lost_path());
}

TEST_F(Adopting, WhatListensElsewhereIsLeft) {
  std::vector<Fd> fds = passed();
  for (const ListenAddress& other :
       {tcp(static_cast<std::uint16_t>(port_ ^ 1)), unix_at(path() + "2"),
        ListenAddress{"x", "127.0.0.2", port_, "", 0}, ListenAddress{"x", "::1", port_, "", 0}}) {
    auto none = Listener::adopt(other, fds);
    EXPECT_TRUE(none && !*none);
  }
  EXPECT_EQ(fds.size(), 2u);
}

TEST_F(Adopting, WhatDoesNotListenIsRefused) {
  std::vector<Fd> fds;
  fds.emplace_back(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  std::strncpy(local.sun_path, path().c_str(), sizeof local.sun_path - 1);
  ASSERT_EQ(::bind(fds[0].get(), reinterpret_cast<sockaddr*>(&local), sizeof local), 0);
  auto refused = Listener::adopt(unix_at(path()), fds);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("does not listen"), std::string::npos);
}

TEST(Listener, KnowsThatItsPathIsGone) {
  TemporaryDirectory dir;
  std::string path = dir / "lmtp";
  auto first = Listener::bind(unix_at(path));
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_FALSE(first->has_lost_path());
  ASSERT_EQ(::unlink(path.c_str()), 0);
  EXPECT_TRUE(first->has_lost_path());
  auto second = Listener::bind(unix_at(path));
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(first->has_lost_path()) << "another socket's path";
  EXPECT_FALSE(second->has_lost_path());
  first->close();
  LmtpClient client(path);
  EXPECT_FALSE(second->has_lost_path()) << "the old listener does not remove it";
  EXPECT_FALSE(Listener::bind(tcp(0))->has_lost_path());
}

TEST(Listener, ASocketThatAnswersStays) {
  TemporaryDirectory dir;
  auto first = Listener::bind(unix_at(dir / "s"));
  ASSERT_TRUE(first);
  auto second = Listener::bind(unix_at(dir / "s"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::unavailable) << "the error may be temporary";
  EXPECT_TRUE(exists(dir / "s"));
}

TEST(Listener, AFileThatIsNoSocketStays) {
  TemporaryDirectory dir;
  std::ofstream(dir / "s") << "precious";
  auto listener = Listener::bind(unix_at(dir / "s"));
  ASSERT_FALSE(listener);
  EXPECT_NE(listener.error().message.find("is not a socket"), std::string::npos);
  EXPECT_TRUE(exists(dir / "s"));
}

TEST(Listener, AMissingDirectoryIsNamed) {
  TemporaryDirectory dir;
  auto listener = Listener::bind(unix_at(dir / "none/s"));
  ASSERT_FALSE(listener);
  EXPECT_NE(listener.error().message.find(dir / "none"), std::string::npos);
}

}  // namespace
}  // namespace twinloft::lmtpd
