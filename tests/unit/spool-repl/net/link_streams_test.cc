// Which connections are clear text, and who may be at the other end of them.
#include "link_streams.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include "sample_volume.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::net {
namespace {

struct LinkStreamsTest : testing::Test {
  OsClock clock;
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock, {.entries = 16}).value();
  LinkSecurity secured{stream::TlsContext::by_secret("well kept", "a test").value()};

  static sockaddr_storage at(const std::string& text) { return numeric_address(text)->storage; }
  static Address address(const std::string& text) { return *numeric_address(text); }
  // Whether the other side of a connection in clear text may be this replica.
  static bool may_be(const LinkStreams& streams, const std::string& other, ReplicaId id) {
    LinkStream made = streams.make(Fd(), Way::clear_text, Handshake::Direction::accepted, at(other));
    return std::get<ByStream>(made.authentication).vouch(id).has_value();
  }
};

TEST_F(LinkStreamsTest, OnlyTheCableItselfIsClearText) {
  LinkStreams streams(*loop, volume, secured);
  streams.add_peer(2, "", {"10.0.0.2:7710"});
  streams.add_peer(3, "", {});
  EXPECT_EQ(*streams.way_to(2, address("10.0.0.2:9999")), Way::clear_text);
  EXPECT_EQ(*streams.way_to(2, address("10.0.0.9:7710")), Way::tls) << "a new address, before the restart";
  EXPECT_EQ(*streams.way_to(3, address("10.0.0.2:7710")), Way::tls) << "another replica there";
  EXPECT_EQ(*streams.way_of_caller(at("10.0.0.2:1")), Way::clear_text);
  EXPECT_EQ(*streams.way_of_caller(at("[::ffff:10.0.0.2]:1")), Way::clear_text) << "the same host";
  EXPECT_EQ(*streams.way_of_caller(at("10.0.0.3:1")), Way::tls);
  streams.set_security({});
  EXPECT_FALSE(streams.way_to(2, address("10.0.0.9:7710")));
  EXPECT_FALSE(streams.way_of_caller(at("10.0.0.3:1")));
  EXPECT_EQ(*streams.way_of_caller(at("127.0.0.1:1")), Way::clear_text);
}

TEST_F(LinkStreamsTest, ABufferedLinkIsNeverClearText) {
  LinkStreams streams(*loop, volume, {});
  streams.add_peer(2, "", {});
  streams.add_peer(3, "", {});
  streams.require_tls(3);
  EXPECT_EQ(*streams.way_to(2, address("127.0.0.1:7710")), Way::clear_text);
  auto refused = streams.way_to(3, address("127.0.0.1:7710"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "the link to replica 3 is buffered, and needs TLS: set `tls_certificate`, or `secret_file`");
  EXPECT_TRUE(may_be(streams, "127.0.0.1:1", 2));
  EXPECT_FALSE(may_be(streams, "127.0.0.1:1", 3)) << "a caller without TLS";
  streams.set_security(secured);
  EXPECT_EQ(*streams.way_to(3, address("127.0.0.1:7710")), Way::tls);
}

// The same link-local address exists on each interface.
TEST_F(LinkStreamsTest, ACableOfALinkLocalAddressIsOneInterface) {
  LinkStreams streams(*loop, volume, secured);
  streams.add_peer(2, "", {"[fe80::2%lo]:7710"});
  sockaddr_storage from = at("[fe80::2%lo]:1");
  EXPECT_EQ(*streams.way_of_caller(from), Way::clear_text);
  ++reinterpret_cast<sockaddr_in6&>(from).sin6_scope_id;
  EXPECT_EQ(*streams.way_of_caller(from), Way::tls);
}

TEST_F(LinkStreamsTest, WhoIsAtACableIsNoOtherReplica) {
  LinkStreams streams(*loop, volume, secured);
  streams.add_peer(2, "", {"10.0.0.2:7710"});
  streams.add_peer(3, "", {});
  EXPECT_TRUE(may_be(streams, "10.0.0.2:1", 2));
  EXPECT_FALSE(may_be(streams, "10.0.0.2:1", 3)) << "its link has TLS";
  EXPECT_FALSE(may_be(streams, "10.0.0.2:1", 4));
  EXPECT_FALSE(may_be(streams, "127.0.0.1:1", 2)) << "another place";
  EXPECT_TRUE(may_be(streams, "127.0.0.1:1", 3));
}

}  // namespace
}  // namespace twinloft::repl::net
