// Clients over TCP whose machine has gone without closing its connections. Runs in its own network namespace,
// so root is needed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <thread>

#include "nbd_server_fixture.h"

namespace twinloft::repl::nbd {
namespace {

struct NbdSilenceTest : NbdServerTest {
  static void set_loopback(bool up) {
    Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    ASSERT_EQ(::ioctl(fd.get(), SIOCGIFFLAGS, &request), 0);
    request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    ASSERT_EQ(::ioctl(fd.get(), SIOCSIFFLAGS, &request), 0);
  }
  // The namespace belongs to this thread, and ends with it.
  void in_own_network(void (NbdSilenceTest::*body)()) {
    ASSERT_EQ(::geteuid(), 0u) << "needs root";
    std::thread([&] {
      ASSERT_EQ(::unshare(CLONE_NEWNET), 0) << std::strerror(errno);
      set_loopback(true);
      loop = io::UringLoop::create(clock).value();  // bound to this thread
      server = std::make_unique<Server>(*loop, target, options);
      auto listening = server->listen_tcp("127.0.0.1", 0);
      ASSERT_TRUE(listening) << listening.error().message;
      port = *listening;
      (this->*body)();
      server.reset();
      loop.reset();
    }).join();
  }
  Fd connect_tcp(const char* from = "127.0.0.1") {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{}, address{};
    own.sin_family = address.sin_family = AF_INET;
    ::inet_pton(AF_INET, from, &own.sin_addr);
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    address.sin_port = htons(port);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof own), 0) << std::strerror(errno);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0)
        << std::strerror(errno);
    EXPECT_EQ(::fcntl(fd.get(), F_SETFL, O_NONBLOCK), 0);
    return fd;
  }
  // A client that has chosen an export. From then on it may be idle for any time.
  Fd connect_serving(const char* from = "127.0.0.1") {
    Fd fd = connect_tcp(from);
    receive(fd, 18);
    send(fd, client_flags() + option(Option::export_name, text("spool")));
    receive(fd, 10);
    return fd;
  }

  void vanish() {
    std::vector<Fd> clients;
    for (unsigned i = 0; i < 8; ++i) clients.push_back(connect_serving());
    EXPECT_EQ(server->connections(), 8u);
    set_loopback(false);
    run_until([&] { return server->connections() == 0; });
    set_loopback(true);
    Fd again = connect_serving();
    EXPECT_EQ(server->connections(), 1u);
  }

  void idle_stays() {
    Fd client = connect_serving();
    auto until = loop->now() + 3 * options.silence;
    while (loop->now() < until) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(100)));
    EXPECT_EQ(server->connections(), 1u);
  }

  void one_address_does_not_take_all() {
    std::vector<Fd> clients;
    for (unsigned i = 0; i < 3; ++i) clients.push_back(connect_serving());
    Fd refused = connect_tcp();
    char byte;
    ssize_t n = -1;
    run_until(
        [&] { return (n = ::recv(refused.get(), &byte, 1, MSG_DONTWAIT)) >= 0 || errno == ECONNRESET; });
    EXPECT_LE(n, 0) << "the client got the greeting";
    Fd other = connect_serving("127.0.0.2");
    EXPECT_EQ(server->connections(), 4u);
    clients.pop_back();
    run_until([&] { return server->connections() == 3; });
    connect_serving();
  }

  std::uint16_t port = 0;
};

TEST_F(NbdSilenceTest, ClientsThatVanishWithoutAWordLeaveTheirPlaces) {
  options.silence = std::chrono::seconds(2);
  in_own_network(&NbdSilenceTest::vanish);
}

TEST_F(NbdSilenceTest, OneThatAnswersProbesMayBeIdle) {
  options.silence = std::chrono::seconds(1);
  in_own_network(&NbdSilenceTest::idle_stays);
}

TEST_F(NbdSilenceTest, OneAddressDoesNotTakeAllPlaces) {
  options.max_connections_per_address = 3;
  in_own_network(&NbdSilenceTest::one_address_does_not_take_all);
}

}  // namespace
}  // namespace twinloft::repl::nbd
