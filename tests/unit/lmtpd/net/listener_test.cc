#include "twinloft/lmtpd/net/listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "temporary_directory.h"

namespace twinloft::lmtpd {
namespace {

ListenAddress tcp(std::uint16_t port) { return {"127.0.0.1:" + std::to_string(port), "127.0.0.1", port, "", 0}; }
ListenAddress unix_at(const std::string& path) { return {"unix:" + path, "", 0, path, 0666}; }

// What a server that was killed leaves behind.
void leave_socket(const std::string& path) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

bool exists(const std::string& path) {
  struct stat found {};
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
  EXPECT_EQ(second.error().code, Errc::conflict);
  EXPECT_NE(second.error().message.find("127.0.0.1:" + std::to_string(first->port())), std::string::npos);
}

TEST(Listener, TheSocketGetsItsModeAndGroup) {
  TemporaryDirectory dir;
  ListenAddress address = unix_at(dir / "s");
  address.mode = 0620;
  address.gid = 4242;
  auto listener = Listener::bind(address);
  ASSERT_TRUE(listener) << listener.error().message;
  struct stat found {};
  ASSERT_EQ(::lstat(address.unix_path.c_str(), &found), 0);
  EXPECT_EQ(found.st_gid, 4242u);
  EXPECT_EQ(found.st_mode & 07777, 0620u);
}

// As docs/lmtpd.md says: owner and group of who starts, and nobody else may connect.
TEST(Listener, ASocketsDefaultsLetInOwnerAndGroupOnly) {
  TemporaryDirectory dir;
  mode_t before = ::umask(0);
  auto listener = Listener::bind({.name = "s", .host = "", .unix_path = dir / "s"});
  ::umask(before);
  ASSERT_TRUE(listener) << listener.error().message;
  struct stat found {};
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
    struct stat found {};
    ASSERT_EQ(::stat((dir / "s").c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0666u);
  }
  EXPECT_FALSE(exists(dir / "s"));
}

TEST(Listener, ASocketThatAnswersStays) {
  TemporaryDirectory dir;
  auto first = Listener::bind(unix_at(dir / "s"));
  ASSERT_TRUE(first);
  auto second = Listener::bind(unix_at(dir / "s"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::conflict);
  EXPECT_TRUE(exists(dir / "s"));
}

TEST(Listener, AFileThatIsNoSocketStays) {
  TemporaryDirectory dir;
  std::ofstream(dir / "s") << "precious";
  auto listener = Listener::bind(unix_at(dir / "s"));
  ASSERT_FALSE(listener);
  EXPECT_NE(listener.error().message.find("is no socket"), std::string::npos);
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
