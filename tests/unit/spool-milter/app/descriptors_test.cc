#include "descriptors.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>
#include <string>

#include "twinloft/base/fd.h"

namespace twinloft::spool_milter {
namespace {

struct DescriptorsTest : testing::Test {
  void SetUp() override { ASSERT_TRUE(descriptors.open()); }
  std::size_t accepted(const Fd& listening) const {
    auto name = SocketName::of(listening.get());
    return name ? descriptors.accepted(*name) : 99;
  }
  Descriptors descriptors;
};

// With its address filled in by the kernel.
struct Listening {
  template <class Address>
  Listening(int family, Address wanted, socklen_t size)
      : fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    auto* out = reinterpret_cast<sockaddr*>(&address);
    length = sizeof address;
    good = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&wanted), size) == 0 &&
           ::listen(fd.get(), 5) == 0 && ::getsockname(fd.get(), out, &length) == 0;
  }
  Fd connect() const {
    Fd out(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(out.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) out.reset();
    return out;
  }
  Fd accept() const { return Fd(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
  Fd fd;
  sockaddr_storage address{};
  socklen_t length = 0;
  bool good = false;
};

// sizeof(sa_family_t) as the size: the kernel chooses an abstract name (unix(7), autobind).
Listening unix_listening() {
  sockaddr_un any{};
  any.sun_family = AF_UNIX;
  return {AF_UNIX, any, sizeof any.sun_family};
}

Listening tcp_listening() {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return {AF_INET, any, sizeof any};
}

TEST_F(DescriptorsTest, AcceptedSocketsAreCounted) {
  for (const Listening& listening : {unix_listening(), tcp_listening()}) {
    ASSERT_TRUE(listening.good);
    EXPECT_EQ(accepted(listening.fd), 0U);
    const Fd client = listening.connect();
    ASSERT_TRUE(client);
    EXPECT_EQ(accepted(listening.fd), 0U) << "it waits to be accepted";
    Fd first = listening.accept();
    EXPECT_EQ(accepted(listening.fd), 1U);
    const Fd other = listening.connect(), second = listening.accept();
    EXPECT_EQ(accepted(listening.fd), 2U);
    first.reset();
    EXPECT_EQ(accepted(listening.fd), 1U);
    ASSERT_EQ(::shutdown(listening.fd.get(), SHUT_RDWR), 0);
    EXPECT_EQ(accepted(listening.fd), 1U) << "the listening socket itself";
  }
}

TEST_F(DescriptorsTest, SocketsOfOthersAreNot) {
  const Listening one = unix_listening(), two = unix_listening(), tcp = tcp_listening();
  const Fd client = one.connect(), served = one.accept(), third = tcp.connect(), taken = tcp.accept();
  ASSERT_TRUE(served && taken);
  EXPECT_EQ(accepted(one.fd), 1U);
  EXPECT_EQ(accepted(two.fd), 0U);
  EXPECT_EQ(accepted(tcp.fd), 1U);
  EXPECT_EQ(accepted(client), 0U) << "sockets without a name are not of one place";
}

TEST_F(DescriptorsTest, ListeningSocketsAreFound) {
  const std::set<int> before = descriptors.listening();
  const Listening listening = tcp_listening();
  const Fd client = listening.connect();
  std::set<int> expected = before;
  expected.insert(listening.fd.get());
  EXPECT_EQ(descriptors.listening(), expected);
}

TEST(SocketName, OfNoSocket) {
  EXPECT_FALSE(SocketName::of(-1));
  EXPECT_FALSE(SocketName().is_beside(SocketName()));
}

}  // namespace
}  // namespace twinloft::spool_milter
