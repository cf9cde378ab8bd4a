#include "twinloft/base/service_manager.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "twinloft/base/fd.h"

namespace twinloft {
namespace {

// The service manager's socket. A `name` that begins with '@' is abstract.
class Manager {
 public:
  explicit Manager(const std::string& name)
      : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, name.data(), name.size());
    if (name[0] == '@') at.sun_path[0] = '\0';
    auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&at), length), 0);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() { ::unsetenv("NOTIFY_SOCKET"); }
  std::string heard() {
    char buffer[256];
    ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    return n < 0 ? "" : std::string(buffer, static_cast<std::size_t>(n));
  }

 private:
  Fd fd_;
};

TEST(ServiceManager, HearsAtAPathAndAtAnAbstractName) {
  const char* tmp = std::getenv("TMPDIR");
  std::string directory = std::string(tmp ? tmp : "/tmp") + "/tl-notify-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  for (const std::string& name : {directory + "/socket", "@twinloft/test/" + std::to_string(::getpid())}) {
    Manager manager(name);
    EXPECT_TRUE(tell_service_manager("READY=1\nSTATUS=serving"));
    EXPECT_EQ(manager.heard(), "READY=1\nSTATUS=serving");
  }
  ::unlink((directory + "/socket").c_str());
  ::rmdir(directory.c_str());
}

TEST(ServiceManager, SocketsArePassedOnceAndToOneProcess) {
  auto said = [](const std::string& pid, const char* count) {
    ::setenv("LISTEN_PID", pid.c_str(), 1);
    ::setenv("LISTEN_FDS", count, 1);
    ::setenv("LISTEN_FDNAMES", "a:b", 1);
  };
  std::string own = std::to_string(::getpid());
  for (auto [pid, count] : {std::pair<std::string, const char*>{"1", "2"},
                            {own, "0"},
                            {own, "-1"},
                            {own, "x"},
                            {own, "2x"},
                            {"", ""}}) {
    said(pid, count);
    EXPECT_TRUE(take_passed_sockets().empty()) << pid << " " << count;
    EXPECT_EQ(::getenv("LISTEN_PID"), nullptr);
  }
  // The test needs descriptors 3 and 4. It restores the present ones afterwards.
  int kept[2] = {::dup(3), ::dup(4)}, ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  int high[2] = {::fcntl(ends[0], F_DUPFD, 100), ::fcntl(ends[1], F_DUPFD, 100)};
  ::close(ends[0]), ::close(ends[1]);
  ASSERT_EQ(::dup2(high[0], 3), 3);
  ASSERT_EQ(::dup2(high[1], 4), 4);
  ::close(high[0]), ::close(high[1]);
  said(own, "2");
  {
    std::vector<Fd> passed = take_passed_sockets();
    ASSERT_EQ(passed.size(), 2u);
    EXPECT_EQ(passed[0].get(), 3);
    EXPECT_EQ(::fcntl(3, F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(::getenv("LISTEN_FDS"), nullptr);
    EXPECT_TRUE(take_passed_sockets().empty());
  }
  for (int i : {0, 1})
    if (kept[i] >= 0) ::dup2(kept[i], 3 + i), ::close(kept[i]);
}

// Each notification to a full socket would wait for a second.
TEST(ServiceManager, OneThatDoesNotReadKeepsNobodyWaiting) {
  Manager manager("@twinloft/test/full/" + std::to_string(::getpid()));
  while (tell_service_manager("STATUS=x", Patience::none)) {
  }
  for (int i = 0; i < 2000; ++i) EXPECT_FALSE(tell_service_manager("STATUS=y", Patience::none));
  EXPECT_EQ(manager.heard(), "STATUS=x");
  EXPECT_TRUE(tell_service_manager("STATUS=z", Patience::none));
}

TEST(ServiceManager, NobodyThere) {
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(tell_service_manager("READY=1"));
  for (const std::string& bad : {std::string("relative"), std::string(), "/" + std::string(200, 'x'),
                                 std::string("/nonexistent/socket")}) {
    ::setenv("NOTIFY_SOCKET", bad.c_str(), 1);
    EXPECT_FALSE(tell_service_manager("READY=1")) << bad;
  }
  ::unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace twinloft
