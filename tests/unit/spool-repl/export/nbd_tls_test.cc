// Clients with TLS: more requests than the server takes at a time, and clients that leave with answers under
// way.
#include <fcntl.h>
#include <netinet/in.h>

#include "nbd_server_fixture.h"
#include "twinloft/spool-repl/stream/socket_stream.h"
#include "twinloft/spool-repl/stream/tls_stream.h"

namespace twinloft::repl::nbd {
namespace {

using stream::Stream;

constexpr std::uint32_t chunk = 128u << 10;
constexpr std::size_t header_bytes = 16;  // of a simple reply

class NbdTlsTest : public NbdServerTest {
 protected:
  NbdTlsTest() {
    target.immediate = true;
    options.tls = context = stream::TlsContext::by_secret("well kept", "a test").value();
    server = std::make_unique<Server>(*loop, target, options);
    port = server->listen_tcp("127.0.0.1", 0).value();
  }
  // A client in clear text, up to the reply to STARTTLS.
  Fd begin() {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int room = 32 << 10;
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(receive(fd, 18).size(), 18u);
    send(fd, client_flags() + option(Option::starttls));
    EXPECT_TRUE(option_answers(receive(fd, 20)).at(0).is(OptionReply::ack));
    return fd;
  }
  void secure(Fd fd) {
    socket = fd.get();
    client = std::make_unique<stream::TlsStream>(*loop,
                                                 std::make_unique<stream::SocketStream>(*loop, std::move(fd)),
                                                 context, stream::TlsStream::Role::client);
    bool opened = false;
    client->start(0, {[&](Status s) { opened = s.has_value(); }, [](unsigned) {}});
    run_until([&] { return opened; });
    give(option(Option::export_name, text("spool")));
    take(10);
  }
  void give(const Bytes& data) {
    std::size_t sent = 0;
    run_until([&] {
      iovec part{const_cast<std::byte*>(data.data()) + sent, data.size() - sent};
      sent += client->write({&part, 1}).value();
      return sent == data.size();
    });
  }
  // Bytes, or fewer if the connection ends first.
  std::size_t take(std::size_t bytes) {
    Bytes room(bytes);
    std::size_t have = 0;
    bool ended = false;
    while (have < bytes && !ended) {
      iovec part{room.data() + have, bytes - have};
      auto got = client->read({&part, 1});
      ended = !got || got->ended;
      if (got) have += got->bytes;
      EXPECT_TRUE(loop->turn(Duration::zero()));
    }
    return have;
  }
  void ask_and_leave(unsigned count) {
    Bytes all;
    for (unsigned i = 0; i < count; ++i) all = all + request(Command::read, i, 0, chunk);
    give(all + request(Command::disconnect, count));
    settle();
  }

  std::shared_ptr<const stream::TlsContext> context;
  std::uint16_t port = 0;
  std::unique_ptr<stream::TlsStream> client;
  int socket = -1;
};

TEST_F(NbdTlsTest, MoreRequestsThanTheServerTakesAtATime) {
  secure(begin());
  constexpr unsigned count = 1000;
  Bytes all;
  for (unsigned i = 0; i < count; ++i) all = all + request(Command::write, i, 0, 4096) + Bytes(4096);
  give(all);
  EXPECT_EQ(take(count * header_bytes), count * header_bytes);
}

TEST_F(NbdTlsTest, AClientThatLeavesGetsItsLastAnswers) {
  // For one of these counts, the last answers are in the stream when the socket is full.
  for (unsigned count = 4; count <= 60; count += 2) {
    secure(begin());
    ask_and_leave(count);
    std::size_t all = count * (header_bytes + chunk);
    ASSERT_EQ(take(all + 1), all) << count;
    run_until([&] { return server->connections() == 0; });
  }
}

TEST_F(NbdTlsTest, AClientThatIsLostIsForgotten) {
  secure(begin());
  ask_and_leave(60);
  linger reset{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  client.reset();
  run_until([&] { return server->connections() == 0; });
}

TEST_F(NbdTlsTest, ClearTextBehindStartTlsEndsTheConnection) {
  Fd fd = begin();
  send(fd, option(Option::export_name, text("spool")));
  receive(fd, 1000);
  run_until([&] { return server->connections() == 0; });
  EXPECT_TRUE(target.seen.empty());
}

}  // namespace
}  // namespace twinloft::repl::nbd
