// Sockets as streams, on the real event loop.
#include "twinloft/spool-repl/stream/socket_stream.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::stream {
namespace {

struct SocketStreamTest : testing::Test {
  OsClock clock;
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock, {.entries = 16}).value();
  unsigned ready = 0;
  std::vector<Status> opened;
  std::unique_ptr<SocketStream> stream;
  Fd other;

  void make(SocketStream::AtClose at_close = SocketStream::AtClose::keep) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    other = Fd(pair[1]);
    stream = std::make_unique<SocketStream>(*loop, Fd(pair[0]), SocketStream::Begin::open, at_close);
    start();
  }
  void start() {
    stream->start(Stream::readable,
                  {[this](Status s) { opened.push_back(std::move(s)); }, [this](unsigned r) { ready |= r; }});
  }
  void turns() {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(5)));
  }
  template <class Predicate>
  void run_until(Predicate done) {
    while (!done()) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  }
  std::string read(std::size_t bytes) {
    std::string text(bytes, '\0');
    iovec iov[2] = {{text.data(), 1}, {text.data() + 1, bytes - 1}};
    auto got = stream->read(iov);
    EXPECT_TRUE(got && !got->ended);
    return text.substr(0, got ? got->bytes : 0);
  }
};

TEST_F(SocketStreamTest, ReadsIntoSeveralSpansAndSaysWhenThereIsNothing) {
  make();
  EXPECT_EQ(stream->state(), Stream::State::open);
  EXPECT_EQ(read(10), "");
  ASSERT_EQ(::send(other.get(), "abcdef", 6, 0), 6);
  run_until([&] { return ready == Stream::readable; });
  EXPECT_EQ(read(4), "abcd");
  EXPECT_EQ(read(4), "ef");
  EXPECT_TRUE(opened.empty());
}

TEST_F(SocketStreamTest, TheEndAndTheErrorAreDifferent) {
  make();
  ASSERT_EQ(::shutdown(other.get(), SHUT_WR), 0);
  std::byte room[8];
  iovec iov{room, sizeof room};
  auto got = stream->read({&iov, 1});
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->ended);
  other.reset();
  iovec out{room, sizeof room};
  auto written = stream->write({&out, 1});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "Broken pipe");
}

TEST_F(SocketStreamTest, TakesWhatFitsAndSaysWhenThereIsRoom) {
  make();
  std::vector<std::byte> data(3000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i % 251);
  std::size_t taken = 0;
  for (;;) {  // more spans than one system call accepts
    std::vector<iovec> iov;
    for (std::byte& b : data) iov.push_back({&b, 1});
    auto n = stream->write(iov);
    ASSERT_TRUE(n);
    taken += *n;
    if (*n < data.size()) break;
  }
  EXPECT_GT(taken, data.size());
  turns();
  EXPECT_EQ(ready, 0u) << "no room was requested";
  stream->want(Stream::readable | Stream::writable);
  std::vector<std::byte> all;
  run_until([&] {
    std::byte buffer[4096];
    ssize_t n = ::recv(other.get(), buffer, sizeof buffer, 0);
    if (n > 0) all.insert(all.end(), buffer, buffer + n);
    return all.size() == taken;
  });
  run_until([&] { return (ready & Stream::writable) != 0; });
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], data[i % data.size()]) << i;
}

TEST_F(SocketStreamTest, WantsNothingWhileToldSo) {
  make();
  stream->want(0);
  ASSERT_EQ(::send(other.get(), "a", 1, 0), 1);
  turns();
  EXPECT_EQ(ready, 0u);
  stream->want(Stream::readable);
  run_until([&] { return ready == Stream::readable; });
}

TEST_F(SocketStreamTest, EndOfOutputLeavesTheInput) {
  make();
  stream->end_output();
  char c;
  EXPECT_EQ(::recv(other.get(), &c, 1, 0), 0);
  ASSERT_EQ(::send(other.get(), "x", 1, 0), 1);
  EXPECT_EQ(read(2), "x");
}

TEST_F(SocketStreamTest, IsClosedAtOnce) {
  make(SocketStream::AtClose::cut);
  stream->close();
  EXPECT_EQ(stream->state(), Stream::State::closed);
  char c;
  EXPECT_EQ(::recv(other.get(), &c, 1, 0), 0) << "before the loop's next turn";
  stream->close();
  turns();
  EXPECT_EQ(ready, 0u);
}

struct ConnectingTest : SocketStreamTest {
  Fd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  void SetUp() override {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    socklen_t length = sizeof address;
    ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  }
  void connect() {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ASSERT_TRUE(rc == 0 || errno == EINPROGRESS);
    stream = std::make_unique<SocketStream>(*loop, std::move(fd), SocketStream::Begin::connecting);
    EXPECT_EQ(stream->state(), Stream::State::opening);
    start();
  }
};

TEST_F(ConnectingTest, SaysOnceThatItIsOpen) {
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  connect();
  run_until([&] { return !opened.empty(); });
  EXPECT_TRUE(opened[0]);
  EXPECT_EQ(stream->state(), Stream::State::open);
  turns();
  EXPECT_EQ(opened.size(), 1u);
  EXPECT_EQ(ready, 0u) << "no room was requested";
  EXPECT_FALSE(stream->is_stuck());
}

TEST_F(ConnectingTest, SaysWhyItIsNot) {
  connect();
  run_until([&] { return !opened.empty(); });
  ASSERT_FALSE(opened[0]);
  EXPECT_EQ(opened[0].error().message, "Connection refused");
  stream->close();
}

}  // namespace
}  // namespace twinloft::repl::stream
