// Who may connect, and how connections are protected: TLS, clear text, and a pair that is being upgraded.
#include <arpa/inet.h>

#include "peer_net_fixture.h"
#include "twinloft/spool-repl/net/security.h"
#include "twinloft/tls/authority.h"

namespace twinloft::repl::net {
namespace {

using stream::TlsContext;
using Kind = LinkProtection::Kind;

const Uuid another_volume = Uuid::parse("3f2e2d2c-4b5a-4978-8695-a4b3c2d1e0ff").value();

struct PeerNetTlsTest : PeerNetTest {
  tls::CertificateAndKey authority = tls::make_authority("Twinloft", {clock.wall(), 30}).value();

  LinkSecurity with(const std::string& uri, const tls::CertificateAndKey& issuer) {
    auto made = tls::issue(issuer, {"a replica", {uri}}, {clock.wall(), 10}).value();
    return {TlsContext::by_certificates({made.certificate, made.key, authority.certificate}).value()};
  }
  LinkSecurity certificate(ReplicaId id, const Uuid& of = volume) {
    return with(certificate_name(of, id), authority);
  }
  static LinkSecurity secret(const std::string& text = "well kept") {
    return {TlsContext::by_secret(text, "twinloft replica").value()};
  }
  NetOptions options(ReplicaId self, ReplicaId peer, LinkSecurity security) {
    NetOptions o = PeerNetTest::options(self, peer);
    o.security = std::move(security);
    o.first_bytes = std::chrono::milliseconds(20);
    return o;
  }
  void start_both(LinkSecurity of_a, LinkSecurity of_b) {
    ASSERT_TRUE(start(a, options(1, 2, std::move(of_a))));
    ASSERT_TRUE(start(b, options(2, 1, std::move(of_b))));
  }
  void connect_both(LinkSecurity of_a, LinkSecurity of_b) {
    start_both(std::move(of_a), std::move(of_b));
    run_until([&] { return a.up() && b.up(); });
  }
  void exchange_large() {
    RecordMessage m{{1, volume}, std::vector<std::byte>(200), std::vector<std::byte>(1u << 20)};
    random.fill(m.payload);
    for (int i = 0; i < 20; ++i) {
      a.net->send(2, m);
      a.net->flush();
    }
    run_until([&] { return b.got.size() == 20; });
    for (const auto& got : b.got) EXPECT_TRUE(got == PeerMessage(m));
    b.net->send(1, Refuse{"no"});
    b.net->flush();
    run_until([&] { return a.got.size() == 1; });
  }
  void end_both() {
    a = {};
    b = {};
    ASSERT_TRUE(loop->turn(Duration(0)));  // the kernel closes the listeners
  }
  // Both report a reason, and nothing connects.
  void expect_refused(std::string_view at_a, std::string_view at_b) {
    run_until([&] { return a.noticed(at_a) && b.noticed(at_b); });
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(5)));
    EXPECT_EQ(a.ups + b.ups, 0);
  }
};

TEST_F(PeerNetTlsTest, CertificatesOfOneAuthorityAreEnough) {
  connect_both(certificate(1), certificate(2));
  exchange_large();
  auto link = a.net->protection(2);
  ASSERT_TRUE(link && link->kind == Kind::certificate);
  EXPECT_NEAR(static_cast<double>(*link->peer_expires - clock.wall().seconds), 10 * 86'400, 100);
}

TEST_F(PeerNetTlsTest, ASecretIsEnough) {
  connect_both(secret(), secret());
  exchange_large();
  EXPECT_EQ(a.net->protection(2)->kind, Kind::secret);
  EXPECT_EQ(b.net->protection(1)->kind, Kind::secret);
  b = {};
  run_until([&] { return !a.up(); });
  EXPECT_FALSE(a.net->protection(2));
}

TEST_F(PeerNetTlsTest, ClearTextIsNamedAsSuch) {
  PeerNetTest::connect_both();
  EXPECT_EQ(a.net->protection(2)->kind, Kind::clear_text);
}

TEST_F(PeerNetTlsTest, AnotherSecretNeverConnects) {
  start_both(secret("guessed"), secret());
  expect_refused("shared secret", "shared secret");
}

TEST_F(PeerNetTlsTest, AnotherAuthorityNeverConnects) {
  auto other = tls::make_authority("Twinloft", {clock.wall(), 30}).value();
  start_both(with(certificate_name(volume, 1), other), certificate(2));
  expect_refused("does not know the authority of this node's certificate", "certificate is not valid");
}

TEST_F(PeerNetTlsTest, ACertificateOfAnotherVolumeIsRefused) {
  start_both(certificate(1, another_volume), certificate(2));
  expect_refused("closed the connection during the handshake",
                 "its certificate is for " + certificate_name(another_volume, 1) + ", not for replica 1");
  end_both();
  start_both(certificate(1), certificate(2, another_volume));
  expect_refused("its certificate is for " + certificate_name(another_volume, 2) + ", not for replica 2",
                 "closed the connection during the handshake");
}

// A replica that was removed has a valid certificate. It cannot name itself as another.
TEST_F(PeerNetTlsTest, ARemovedReplicaIsRefused) {
  NetOptions of_removed = options(1, 2, certificate(1)), of_b = options(2, 3, certificate(2));
  of_b.peers[0].addresses = {ports[0].address()};
  ASSERT_TRUE(start(a, of_removed));
  ASSERT_TRUE(start(b, of_b));
  run_until([&] { return b.noticed("replica 1 is not a peer of this volume"); });
  EXPECT_EQ(a.ups + b.ups, 0);
  end_both();
  start_both(certificate(3), certificate(2));
  expect_refused("closed the connection",
                 "its certificate is for " + certificate_name(volume, 3) + ", not for replica 1");
}

// A site's own certificates have names of hosts.
TEST_F(PeerNetTlsTest, TheConfigurationMayNameAnotherName) {
  NetOptions of_a = options(1, 2, with("site:mail1", authority)),
             of_b = options(2, 1, with("site:mail2", authority));
  of_a.peers[0].certificate_name = "site:mail2";
  of_b.peers[0].certificate_name = "site:mail1";
  ASSERT_TRUE(start(a, of_a));
  ASSERT_TRUE(start(b, of_b));
  run_until([&] { return a.up() && b.up(); });
}

// Only the next connections have the new certificate. The present one stays.
TEST_F(PeerNetTlsTest, ARenewalNeedsNoStop) {
  connect_both(certificate(1), certificate(2));
  auto renewed = certificate(2);
  b.net->set_security(renewed);
  a.net->set_security(certificate(1));
  exchange_large();
  EXPECT_EQ(a.downs + b.downs, 0);
  a.net->close(2, "once more");
  run_until([&] { return a.ups == 2 && b.ups == 2; });
}

TEST_F(PeerNetTlsTest, ClearTextIsForLoopbackAndDirectCables) {
  NetOptions o = PeerNetTest::options(1, 2);
  o.peers[0].addresses = {"192.0.2.1:7788"};
  auto outside = start(a, o);
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().code, Errc::invalid);
  EXPECT_NE(outside.error().message.find("`tls_certificate`, or `secret_file`"), std::string::npos);
  NetOptions wide = PeerNetTest::options(1, 2);
  wide.listen = {"0.0.0.0:" + std::to_string(ports[1].number)};
  EXPECT_FALSE(start(a, wide));
  wide.peers = {{2, {"192.0.2.1:7788"}, "", true}};
  EXPECT_TRUE(start(a, wide)) << "the cable is named";
  wide.peers.push_back({3, {"192.0.2.2:7788"}});
  EXPECT_FALSE(start(a, wide)) << "but not for the other peer";
  EXPECT_TRUE(start(a, PeerNetTest::options(1, 2)));
}

// With TLS for others, a peer at a cable speaks clear text, and nobody else does.
TEST_F(PeerNetTlsTest, ADirectCableIsClearTextBesideTls) {
  NetOptions of_a = options(1, 2, secret()), of_b = options(2, 1, secret());
  of_a.peers[0].direct_cable = of_b.peers[0].direct_cable = true;
  ASSERT_TRUE(start(a, of_a));
  ASSERT_TRUE(start(b, of_b));
  run_until([&] { return a.up() && b.up(); });
  EXPECT_EQ(a.net->protection(2)->kind, Kind::clear_text);
  Fd fd = call(5);  // from 127.0.0.5
  say(fd, framed(1, std::vector<std::byte>(100)));
  hear_until_closed(fd);
  EXPECT_TRUE(b.noticed("does not speak TLS: it begins with \"TLWR\"")) << b.notices.back();
}

TEST_F(PeerNetTlsTest, OnlyOneSideSpeaksTls) {
  start_both({}, secret());
  run_until([&] { return b.noticed("does not speak TLS: it begins with \"TLWR\""); });
  end_both();
  start_both(secret(), {});
  run_until([&] { return b.noticed("does not use the replication protocol"); });
  EXPECT_EQ(a.ups + b.ups, 0);
}

// ---- a pair that is being upgraded

// A replica of an old release, played by the test: clear text, challenge, hello, proof.
struct UpgradeTest : PeerNetTlsTest {
  LinkSecurity accepting() {
    LinkSecurity s = secret();
    s.old_secret = "well kept";
    return s;
  }
  Fd listener;
  void listen_as_old() {
    listener = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int one = 1;
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    Address at = *numeric_address(ports[2].address());
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at.storage), at.length), 0);
    ASSERT_EQ(::listen(listener.get(), 8), 0);
  }
  // Old releases speak first.
  void serve_as_old(const Fd& fd) {
    Handshake mine({volume, 1000, 2}, OldRelease{"well kept"}, Handshake::Direction::accepted, 0, random);
    for (const auto& m : mine.take_output()) say(fd, framed(m.type, m.payload));
    bool done = false;
    while (!done) {
      std::byte first;
      run_until([&] { return ::recv(fd.get(), &first, 1, MSG_PEEK) >= 0; });
      if (::recv(fd.get(), &first, 1, MSG_PEEK) != 1 || first != std::byte{'T'}) return;
      auto header = decode_wire_header(hear(fd, wire_header_bytes));
      auto result = mine.receive(header->type, hear(fd, header->payload_bytes));
      for (const auto& m : mine.take_output()) say(fd, framed(m.type, m.payload));
      ASSERT_TRUE(result);
      done = *result;
    }
    pass_trial(fd);
  }
  Fd dial_as_old() {
    Fd fd = call();
    Handshake mine({volume, 1000, 1}, OldRelease{"well kept"}, Handshake::Direction::dialed, 2, random);
    for (bool done = false; !done;) {
      for (const auto& m : mine.take_output()) say(fd, framed(m.type, m.payload));
      auto header = decode_wire_header(hear(fd, wire_header_bytes));
      done = mine.receive(header->type, hear(fd, header->payload_bytes)).value();
    }
    return fd;
  }
};

TEST_F(UpgradeTest, AnOldReplicaMayCallUntilItHasSpokenTls) {
  ASSERT_TRUE(start(b, options(2, 1, accepting())));
  Fd old = dial_as_old();
  pass_trial(old);
  run_until([&] { return b.up(); });
  EXPECT_EQ(b.net->protection(1)->kind, Kind::old_release);
  EXPECT_TRUE(b.noticed("replica 1 runs a release without TLS: the connection is in clear text"));
  // It is upgraded.
  old = {};
  run_until([&] { return !b.up(); });
  ASSERT_TRUE(start(a, options(1, 2, accepting())));
  run_until([&] { return a.up() && b.up(); });
  EXPECT_EQ(b.net->protection(1)->kind, Kind::secret);
  // No caller without TLS counts as the old one any more.
  Fd late = dial_as_old();
  hear_until_closed(late);
  EXPECT_TRUE(b.noticed("replica 1 has spoken TLS before, and now comes without it"));
  EXPECT_EQ(b.downs, 1);
}

TEST_F(UpgradeTest, AnOldReplicaHasNoBufferedLink) {
  NetOptions buffered = options(2, 1, accepting());
  buffered.peers[0].needs_tls = true;
  ASSERT_TRUE(start(b, std::move(buffered)));
  Fd old = dial_as_old();
  hear_until_closed(old);
  EXPECT_TRUE(b.noticed("the link to replica 1 is buffered, and needs TLS: its release has none"));
  EXPECT_EQ(b.ups, 0);
}

TEST_F(UpgradeTest, AnOldReplicaIsDialedWithoutTls) {
  listen_as_old();
  ASSERT_TRUE(start(a, options(1, 2, accepting())));
  std::vector<Fd> callers;
  while (!a.up()) {
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    Fd caller;
    run_until([&] {
      caller = Fd(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK));
      return static_cast<bool>(caller) || a.up();
    });
    if (caller) serve_as_old(caller), callers.push_back(std::move(caller));
  }
  EXPECT_EQ(a.net->protection(2)->kind, Kind::old_release);
  // After its upgrade, the next connection has TLS.
  listener = {};
  callers.clear();
  run_until([&] { return !a.up(); });
  ASSERT_TRUE(start(b, options(2, 1, accepting())));
  run_until([&] { return a.up() && b.up(); });
  EXPECT_EQ(a.net->protection(2)->kind, Kind::secret);
}

TEST_F(UpgradeTest, WithoutThatSettingOldReplicasAreRefused) {
  ASSERT_TRUE(start(b, options(2, 1, secret())));
  Fd caller = call();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(5)));
  char byte;
  EXPECT_EQ(::recv(caller.get(), &byte, 1, 0), -1) << "no challenge";
  b = {};
  ASSERT_TRUE(loop->turn(Duration(0)));
  listen_as_old();
  ASSERT_TRUE(start(a, options(1, 2, secret())));
  for (int round = 0; round < 3; ++round) {
    Fd fd;
    run_until([&] {
      return static_cast<bool>(fd = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK)));
    });
    say(fd, framed(4, std::vector<std::byte>(34)));
    std::vector<std::byte> heard = hear_until_closed(fd);
    EXPECT_TRUE(heard.empty() || heard[0] == std::byte{22}) << "only TLS";
  }
  EXPECT_TRUE(a.noticed("does not speak TLS: it begins with \"TLWR\""));
}

// The upgrade is over: what is left of it ends, also a caller that has not been decided about.
TEST_F(UpgradeTest, AReloadWithoutThatSettingEndsIt) {
  ASSERT_TRUE(start(b, options(2, 1, accepting())));
  Fd old = dial_as_old();
  pass_trial(old);
  run_until([&] { return b.up(); });
  clock.take();  // so that the caller is not decided about
  Fd undecided = call();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  b.net->set_security(secret());
  clock.by_hand = false;
  run_until([&] { return !b.up(); });
  EXPECT_TRUE(b.noticed("replica 1 has no TLS, which is required from now on"));
  hear_until_closed(old);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(5)));
  char byte;
  EXPECT_EQ(::recv(undecided.get(), &byte, 1, 0), -1) << "no challenge";
}

// Each host has places of its own, so an old replica gets its time.
TEST_F(UpgradeTest, SilentCallersDoNotKeepAnOldReplicaOut) {
  ASSERT_TRUE(start(b, options(2, 1, accepting())));
  std::vector<Fd> strangers;
  Fd fd = call();
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(call(2));
    ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  }
  EXPECT_EQ(decode_wire_header(hear(fd, wire_header_bytes))->type, 4) << "the challenge";
}

TEST_F(UpgradeTest, ManySilentCallersDoNotKeepThePeerOut) {
  ASSERT_TRUE(start(b, options(2, 1, accepting())));
  std::vector<Fd> strangers;
  for (int host = 1; host <= 10; ++host)
    for (int i = 0; i < 8; ++i) strangers.push_back(call(host));
  ASSERT_TRUE(start(a, options(1, 2, accepting())));
  run_until([&] { return a.up() && b.up(); });
}

}  // namespace
}  // namespace twinloft::repl::net
