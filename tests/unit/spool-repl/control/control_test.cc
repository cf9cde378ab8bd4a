#include "twinloft/spool-repl/control/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <sys/syscall.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::control {
namespace {

struct ControlTest : testing::Test {
  OsClock clock;
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock, {.entries = 64}).value();
  std::string folder, path;
  std::vector<std::string> commands;

  void SetUp() override {
    const char* tmp = std::getenv("TMPDIR");
    folder = std::string(tmp ? tmp : "/tmp") + "/tl-control-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    path = folder + "/v.sock";
  }
  void TearDown() override {
    ::unlink(path.c_str());
    ::rmdir(folder.c_str());
  }
  Result<std::string> handle(const std::string& command) {
    commands.push_back(command);
    if (command == "fail") return fail(Errc::conflict, "it does not fit");
    if (command == "nothing") return "";
    if (command == "long") return std::string(3u << 20, 'x');
    return "you said " + command + "\n";
  }
  std::unique_ptr<Server> serve() {
    auto server = std::make_unique<Server>(
        *loop, path, [this](const std::string& c, Server::Reply reply) { reply(handle(c)); });
    auto started = server->start();
    EXPECT_TRUE(started) << started.error().message;
    return server;
  }
  // The client blocks, so it runs in its own thread.
  Result<std::string> ask_beside(const std::string& command, Duration timeout = std::chrono::seconds(20)) {
    Result<std::string> out = fail(Errc::internal, "not asked");
    bool done = false;
    std::thread client([&] {
      out = ask(path, command, timeout);
      loop->post([&] { done = true; });
    });
    while (!done) EXPECT_TRUE(loop->turn(std::chrono::seconds(1)));
    client.join();
    return out;
  }
  Fd connect_raw() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  std::string hear_until_closed(const Fd& fd) {
    std::string all;
    for (;;) {
      char buffer[4096];
      ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return all;
      if (n > 0) all.append(buffer, static_cast<std::size_t>(n));
      EXPECT_TRUE(loop->turn(std::chrono::milliseconds(10)));
    }
  }
};

TEST_F(ControlTest, AsksAndAnswers) {
  auto server = serve();
  EXPECT_EQ(ask_beside("status").value(), "you said status\n");
  EXPECT_EQ(ask_beside("status --json").value(), "you said status --json\n");
  EXPECT_EQ(commands, (std::vector<std::string>{"status", "status --json"}));
}

TEST_F(ControlTest, AnErrorComesBackAsOne) {
  auto server = serve();
  auto out = ask_beside("fail");
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().message, "it does not fit");
  EXPECT_EQ(out.error().code, Errc::conflict);
}

TEST_F(ControlTest, AnEmptyAnswerIsAnAnswer) {
  auto server = serve();
  EXPECT_EQ(ask_beside("nothing").value(), "");
}

TEST_F(ControlTest, AnAnswerLargerThanTheSocketTakesAtOnce) {
  auto server = serve();
  EXPECT_EQ(ask_beside("long").value().size(), (3u << 20) + 1);  // including the line end of the answer
}

TEST_F(ControlTest, ByteByByteIsAsGoodAsWhole) {
  auto server = serve();
  Fd fd = connect_raw();
  for (char c : std::string("status\n")) {
    ASSERT_EQ(::send(fd.get(), &c, 1, MSG_NOSIGNAL), 1);
    ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  }
  EXPECT_EQ(hear_until_closed(fd), "you said status\nend ok\n");
}

TEST_F(ControlTest, AnOverlongCommandIsNotHandled) {
  auto server = serve();
  Fd fd = connect_raw();
  std::string text(command_bytes_max * 3, 'a');
  std::size_t sent = 0;
  while (sent < text.size()) {
    ssize_t n = ::send(fd.get(), text.data() + sent, std::min<std::size_t>(400, text.size() - sent),
                       MSG_NOSIGNAL);
    if (n < 0) break;
    sent += static_cast<std::size_t>(n);
    ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  }
  EXPECT_EQ(hear_until_closed(fd), "end error invalid a command of more than 512 bytes\n");
  EXPECT_TRUE(commands.empty());
  EXPECT_EQ(ask_beside("status").value(), "you said status\n") << "others are served";
}

TEST_F(ControlTest, CallersThatSayNothingDoNotDisturb) {
  auto server = serve();
  std::vector<Fd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(connect_raw());
  silent.pop_back();  // one caller disconnects without a command
  EXPECT_EQ(ask_beside("status").value(), "you said status\n");
}

// More callers than the server has places, and more than the kernel queues.
TEST_F(ControlTest, SilentCallersKeepNobodyOut) {
  auto server = serve();
  std::vector<Fd> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(connect_raw());
    ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
    ASSERT_TRUE(loop->turn(Duration(0)));
  }
  EXPECT_EQ(ask_beside("status").value(), "you said status\n");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ask_beside("again").value(), "you said again\n");
}

// A caller that waits for its answer does not count as silent.
TEST_F(ControlTest, SilentCallersTakeNobodysAnswer) {
  Server::Reply later;
  Server server(*loop, path, [&](const std::string&, Server::Reply reply) { later = std::move(reply); });
  ASSERT_TRUE(server.start());
  Fd waiting = connect_raw();
  ASSERT_EQ(::send(waiting.get(), "promote\n", 8, MSG_NOSIGNAL), 8);
  while (!later) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  std::vector<Fd> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(connect_raw());
    ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
    ASSERT_TRUE(loop->turn(Duration(0)));
  }
  later(std::string("promoted"));
  EXPECT_EQ(hear_until_closed(waiting), "promoted\nend ok\n");
}

// A caller that does not read its answer is treated like a silent caller.
TEST_F(ControlTest, CallersThatDoNotReadTakeNobodysAnswer) {
  Server::Reply later;
  Server server(*loop, path, [&](const std::string& c, Server::Reply reply) {
    if (c == "promote")
      later = std::move(reply);
    else
      reply(std::string(3u << 20, 'x'));
  });
  ASSERT_TRUE(server.start());
  Fd waiting = connect_raw();
  ASSERT_EQ(::send(waiting.get(), "promote\n", 8, MSG_NOSIGNAL), 8);
  while (!later) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  std::vector<Fd> deaf;
  for (int i = 0; i < 100; ++i) {
    deaf.push_back(connect_raw());
    ASSERT_EQ(::send(deaf.back().get(), "long\n", 5, MSG_NOSIGNAL), 5);
    for (int turns = 0; turns < 3; ++turns) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  }
  EXPECT_EQ(ask_beside("again").value().size(), (3u << 20) + 1);
  later(std::string("promoted"));
  EXPECT_EQ(hear_until_closed(waiting), "promoted\nend ok\n");
}

TEST_F(ControlTest, ACommandThatIsCutOffIsAnswered) {
  auto server = serve();
  for (std::string_view part : {"", "s", "status"}) {
    Fd fd = connect_raw();
    ASSERT_EQ(::send(fd.get(), part.data(), part.size(), MSG_NOSIGNAL), static_cast<ssize_t>(part.size()));
    ASSERT_EQ(::shutdown(fd.get(), SHUT_WR), 0);
    EXPECT_EQ(hear_until_closed(fd), "end error invalid the command has no end: a line was expected\n")
        << part;
  }
  Fd whole = connect_raw();
  ASSERT_EQ(::send(whole.get(), "status\n", 7, MSG_NOSIGNAL), 7);
  ASSERT_EQ(::shutdown(whole.get(), SHUT_WR), 0);
  EXPECT_EQ(hear_until_closed(whole), "you said status\nend ok\n");
}

TEST_F(ControlTest, AServerThatEndsAnswersThoseThatWait) {
  bool asked = false;
  auto server = std::make_unique<Server>(*loop, path,
                                         [&](const std::string&, Server::Reply) { asked = true; });
  ASSERT_TRUE(server->start());
  Fd waiting = connect_raw();
  ASSERT_EQ(::send(waiting.get(), "promote\n", 8, MSG_NOSIGNAL), 8);
  while (!asked) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  Fd silent = connect_raw();
  for (int turns = 0; turns < 3; ++turns) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  server.reset();
  EXPECT_EQ(
      hear_until_closed(waiting),
      "end error io the volume is no longer served: it is unknown whether the command was carried out\n");
  EXPECT_EQ(hear_until_closed(silent), "end error unavailable the volume is no longer served\n");
}

// A server that the test controls for each connection.
struct Scripted {
  Fd listener;
  explicit Scripted(const std::string& path) : listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener.get(), 4), 0);
  }
  void serve_one(bool reads, std::string_view says) {
    Fd fd(::accept(listener.get(), nullptr, nullptr));
    char buffer[100];
    if (reads) {
      EXPECT_GT(::recv(fd.get(), buffer, sizeof buffer, 0), 0);
    }
    EXPECT_EQ(::send(fd.get(), says.data(), says.size(), MSG_NOSIGNAL), static_cast<ssize_t>(says.size()));
  }
};

TEST_F(ControlTest, AnAnswerThatEndsEarlyIsNoSuccess) {
  ASSERT_NE(std::signal(SIGPIPE, SIG_DFL), SIG_ERR);  // as in the program
  Scripted server(path);
  for (std::string_view whole :
       {std::string_view("demoted\nend ok\n"), std::string_view("end error conflict no\n")})
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
      for (bool reads : {true, false}) {
        std::thread peer([&] { server.serve_one(reads, whole.substr(0, bytes)); });
        auto out = ask(path, "demote", std::chrono::seconds(20));
        peer.join();
        ASSERT_FALSE(out) << bytes;
        EXPECT_EQ(out.error().code, Errc::io) << bytes << ": " << out.error().message;
        EXPECT_NE(out.error().message.find("unknown whether"), std::string::npos);
      }
  std::thread peer([&] { server.serve_one(true, "demoted\nend ok\n"); });
  EXPECT_EQ(ask(path, "demote", std::chrono::seconds(20)).value(), "demoted\n");
  peer.join();
}

// An answer may contain any text, even text like its own end.
TEST_F(ControlTest, AnAnswerThatLooksLikeItsEnd) {
  Server server(*loop, path, [](const std::string& c, Server::Reply reply) {
    if (c == "a") return reply(std::string("end error io x\n"));
    reply(fail(Errc::conflict, "two\nend ok\n"));
  });
  ASSERT_TRUE(server.start());
  EXPECT_EQ(ask_beside("a").value(), "end error io x\n");
  auto error = ask_beside("b");
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().message, "two end ok ");
}

// Asks as an unprivileged user. Raw system calls change the user of one thread only.
TEST_F(ControlTest, OthersMayReadWhereTheyAreAdmitted) {
  constexpr uid_t nobody = 65534;
  if (::geteuid() != 0) return;  // only root can change its user
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  auto ask_as_nobody = [&](const std::string& command) {
    Result<std::string> out = fail(Errc::internal, "not asked");
    bool done = false;
    std::thread client([&] {
      EXPECT_EQ(::syscall(SYS_setgroups, 0, nullptr), 0);
      EXPECT_EQ(::syscall(SYS_setresgid, nobody, nobody, nobody), 0);
      EXPECT_EQ(::syscall(SYS_setresuid, nobody, nobody, nobody), 0);
      out = ask(path, command, std::chrono::seconds(20));
      loop->post([&] { done = true; });
    });
    while (!done) EXPECT_TRUE(loop->turn(std::chrono::seconds(1)));
    client.join();
    return out;
  };
  auto handler = [this](const std::string& c, Server::Reply reply) { reply(handle(c)); };
  {
    Server crowded(*loop, path, handler, Access{.everybody = true, .group = {}});
    ASSERT_TRUE(crowded.start());
    Fd root = connect_raw();  // it has not sent its command yet
    std::vector<Fd> silent;
    std::atomic<bool> done = false;
    std::thread crowd([&] {
      EXPECT_EQ(::syscall(SYS_setresuid, nobody, nobody, nobody), 0);
      for (int i = 0; i < 100; ++i) {
        silent.push_back(connect_raw());
        ::usleep(1000);
      }
      done = true;
    });
    while (!done) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
    crowd.join();
    ASSERT_EQ(::send(root.get(), "status\n", 7, MSG_NOSIGNAL), 7);
    EXPECT_EQ(hear_until_closed(root), "you said status\nend ok\n") << "other users have taken root's place";
  }
  commands.clear();
  {
    Server closed(*loop, path, handler);
    ASSERT_TRUE(closed.start());
    EXPECT_EQ(ask_as_nobody("status").error().code, Errc::denied);
  }
  for (Access access :
       {Access{.everybody = true, .group = {}}, Access{.everybody = false, .group = nobody}}) {
    commands.clear();
    Server open(*loop, path, handler, access);
    ASSERT_TRUE(open.start());
    for (const char* reading : {"status", "status json", "events 0 json"})
      EXPECT_TRUE(ask_as_nobody(reading)) << reading;
    for (const char* command : {"promote", "demote", "statusx", "discard force", ""})
      EXPECT_EQ(ask_as_nobody(command).error().code, Errc::denied) << command;
    EXPECT_EQ(commands.size(), 3u);
    EXPECT_TRUE(ask_beside("promote"));
  }
}

TEST_F(ControlTest, ALivingServerKeepsItsSocket) {
  auto server = serve();
  Server second(*loop, path,
                [](const std::string&, Server::Reply reply) { reply(std::string("the wrong one")); });
  auto started = second.start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Errc::unavailable);
  EXPECT_NE(started.error().message.find(path), std::string::npos);
  EXPECT_EQ(ask_beside("status").value(), "you said status\n");
}

TEST_F(ControlTest, ADeadServersSocketIsReplaced) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  Fd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  dead.reset();
  ASSERT_EQ(::access(path.c_str(), F_OK), 0) << "its name stays";
  auto server = serve();
  EXPECT_EQ(ask_beside("status").value(), "you said status\n");
}

// The socket's path was removed, and another process listens there.
TEST_F(ControlTest, AnotherServersSocketOutlivesThisServer) {
  auto server = serve();
  ASSERT_EQ(::unlink(path.c_str()), 0);
  auto other = serve();
  server.reset();
  EXPECT_EQ(ask_beside("status").value(), "you said status\n");
  other.reset();
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST_F(ControlTest, AFileThatIsNoSocketIsNeverRemoved) {
  std::ofstream(path) << "precious";
  Server server(*loop, path, [](const std::string&, Server::Reply reply) { reply(std::string()); });
  auto started = server.start();
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find(path), std::string::npos);
  EXPECT_EQ(started.error().code, Errc::conflict) << "waiting does not help";
  std::ifstream file(path);
  std::string text;
  file >> text;
  EXPECT_EQ(text, "precious");
}

TEST_F(ControlTest, TheSocketIsForOwnerAndGroup) {
  auto server = serve();
  struct stat st{};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0660u);
  server.reset();
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << "removed with the server";
}

TEST_F(ControlTest, PathsTooLong) {
  std::string deep = folder + "/" + std::string(120, 'p');
  Server server(*loop, deep, [](const std::string&, Server::Reply reply) { reply(std::string()); });
  auto started = server.start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Errc::invalid);
  EXPECT_EQ(ask(deep, "status", std::chrono::seconds(1)).error().code, Errc::invalid);
}

TEST_F(ControlTest, NobodyThere) {
  auto out = ask(path, "status", std::chrono::seconds(1));
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Errc::unavailable);
  EXPECT_NE(out.error().message.find(path), std::string::npos);
  Server server(*loop, folder + "/missing/v.sock",
                [](const std::string&, Server::Reply reply) { reply(std::string()); });
  auto started = server.start();
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("missing"), std::string::npos) << started.error().message;
}

TEST_F(ControlTest, AServerThatDoesNotAnswerInTime) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  Fd mute(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(mute.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(mute.get(), 4), 0);
  auto out = ask(path, "status", std::chrono::milliseconds(20));
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Errc::timeout);
}

}  // namespace
}  // namespace twinloft::repl::control
