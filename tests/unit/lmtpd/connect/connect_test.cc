#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "../../support/loopback.h"
#include "twinloft/lmtpd/connect/connector.h"

namespace twinloft::lmtpd {
namespace {

TEST(ConnectTarget, Forms) {
  auto name = parse_connect_target("store1.example.org:24");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->host, "store1.example.org");
  EXPECT_EQ(name->port, 24);
  EXPECT_EQ(parse_connect_target("[2001:db8::1]:2400")->host, "2001:db8::1");
  EXPECT_EQ(parse_connect_target("unix:/run/x")->unix_path, "/run/x");
  for (const char* text : {"", ":24", "a", "a:", "a:0", "a:65536", "a:25", "a:24x", "2001:db8::1:24",
                           "[a]:24", "a b:24", "a/b:24", "unix:", "unix:x"})
    EXPECT_FALSE(parse_connect_target(text)) << text;
  EXPECT_FALSE(parse_connect_target("unix:/" + std::string(200, 'x')));
}

TEST(ConnectProcess, ConnectsToItsTargetsAndToNothingElse) {
  loopback::Listening here = loopback::listen();
  auto process = ConnectProcess::start(
      {*parse_connect_target("127.0.0.1:" + std::to_string(here.port)), *parse_connect_target("127.0.0.1:1"),
       *parse_connect_target("unix:/nonexistent/x")},
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
  EXPECT_NE(refused.error().message.find("127.0.0.1:1: Connection refused"), std::string::npos)
      << refused.error().message;
  EXPECT_NE((*process)->connect(2).error().message.find("No such file"), std::string::npos);
  EXPECT_EQ((*process)->connect(3).error().code, Errc::denied);
}

// The pid of the process, in shared memory.
struct Told {
  pid_t* pid = static_cast<pid_t*>(
      ::mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ~Told() { ::munmap(pid, sizeof *pid); }
};

// Callers of a stopped process get a timeout. After SIGCONT the process serves again.
TEST(ConnectProcess, AProcessThatHangsIsGivenUpInTime) {
  loopback::Listening here = loopback::listen();
  Told told;
  ConnectTarget target = *parse_connect_target("127.0.0.1:" + std::to_string(here.port));
  target.timeout = std::chrono::milliseconds(50);
  auto process = ConnectProcess::start({target}, [&] {
    *told.pid = ::getpid();
    return Status();
  });
  ASSERT_TRUE(process);
  ASSERT_EQ(::kill(*told.pid, SIGSTOP), 0);
  ASSERT_EQ(::waitpid(*told.pid, nullptr, WUNTRACED), *told.pid);
  std::vector<std::thread> threads;
  std::atomic<int> timeouts = 0;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      auto fd = (*process)->connect(0);
      if (!fd && fd.error().code == Errc::timeout) ++timeouts;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(timeouts, 6);
  EXPECT_EQ((*process)->connect(0).error().code, Errc::timeout) << "no lane is free";
  ASSERT_EQ(::kill(*told.pid, SIGCONT), 0);
  while (!(*process)->connect(0)) ::usleep(1000);
}

// A listener with a full queue: the kernel answers no client.
struct Silent : loopback::Listening {
  std::vector<Fd> queue;
  Silent() : Listening(loopback::listen(0)) {
    for (int i = 0; i < 4; ++i) {
      queue.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(port);
      (void)::connect(queue.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    }
  }
};

TEST(ConnectProcess, OneTargetThatIsSilentLeavesRoomForTheOthers) {
  Silent silent;
  loopback::Listening here = loopback::listen();
  ConnectTarget slow = *parse_connect_target("127.0.0.1:" + std::to_string(silent.port)),
                good = *parse_connect_target("127.0.0.1:" + std::to_string(here.port));
  slow.timeout = std::chrono::minutes(10);
  good.timeout = std::chrono::seconds(1);
  auto process = ConnectProcess::start({slow, good}, [] { return Status(); });
  ASSERT_TRUE(process);
  std::vector<std::thread> threads;
  std::atomic<int> begun = 0, ended = 0;
  for (int i = 0; i < 12; ++i)
    threads.emplace_back([&] {
      ++begun;
      (void)(*process)->connect(0);
      ++ended;
    });
  while (begun < 12) ::usleep(1000);
  // Repeated, since the silent target's callers may not have taken their lanes yet. If they could take all
  // lanes, each call would wait for ten minutes.
  for (int connected = 0; connected < 20; ::usleep(5'000)) {
    Result<Fd> fd = (*process)->connect(1);
    connected += fd.has_value();
    Fd theirs(fd ? ::accept(here.fd.get(), nullptr, nullptr) : -1);
    EXPECT_TRUE(fd || fd.error().code == Errc::timeout) << fd.error().message;
  }
  EXPECT_EQ(ended, 0) << "the calls had to wait for the silent target";
  silent.fd.reset();  // connections are refused from now on
  for (std::thread& t : threads) t.join();
}

// All addresses of a name share the time limit: "localhost" may have two.
TEST(ConnectTo, ATimeThatIsOverIsAnError) {
  Silent silent;
  ConnectTarget target = *parse_connect_target("127.0.0.1:" + std::to_string(silent.port));
  for (auto time : {std::chrono::milliseconds(1), std::chrono::milliseconds(30)}) {
    target.timeout = time;
    auto fd = connect_to(target);
    ASSERT_FALSE(fd);
    EXPECT_EQ(fd.error().code, Errc::timeout) << fd.error().message;
  }
}

TEST(ConnectProcess, WhatItCannotBecomeIsAnError) {
  auto process = ConnectProcess::start({*parse_connect_target("a:24")},
                                       []() -> Status { return fail(Errc::denied, "not today"); });
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().message, "not today");
}

}  // namespace
}  // namespace twinloft::lmtpd
