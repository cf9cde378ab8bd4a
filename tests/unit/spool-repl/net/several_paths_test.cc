// Links of several paths. A detour stands in for each path: the test stops it, cuts it, and opens it again.
#include <future>

#include "peer_net_fixture.h"
#include "twinloft/tls/authority.h"

namespace twinloft::repl::net {
namespace {

class Detour {
 public:
  Detour(ports::Loop& loop, std::string to) : loop_(loop), to_(std::move(to)) { open(); }
  ~Detour() { close(); }
  Detour(const Detour&) = delete;
  Detour& operator=(const Detour&) = delete;

  std::string address() const { return port_.address(); }
  void open() {
    Address at = *numeric_address(port_.address());
    listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int one = 1;
    setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at.storage), at.length), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    loop_.watch(listener_.get(), ports::Loop::readable, [this](unsigned) { on_caller(); });
    passes = true;
  }
  void close() {
    if (!listener_) return;
    loop_.unwatch(listener_.get());
    listener_ = Fd();
    for (auto& p : pairs_) end(*p);
    pairs_.clear();
  }
  bool passes = true;                // false: what arrives stays here
  std::size_t bytes_max = SIZE_MAX;  // of each connection and direction: what comes behind them stays here
  std::size_t bytes = 0;             // that went by it
  int callers = 0;

 private:
  struct Pair {
    Fd ends[2];
    bool is_open = true;
    std::size_t bytes[2] = {};
  };
  void on_caller() {
    auto pair = std::make_unique<Pair>();
    pair->ends[0] = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!pair->ends[0]) return;
    ++callers;
    Address at = *numeric_address(to_);
    pair->ends[1] = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(pair->ends[1].get(), reinterpret_cast<sockaddr*>(&at.storage), at.length) < 0) return;
    for (int i : {0, 1})
      loop_.watch(pair->ends[i].get(), ports::Loop::readable,
                  [this, p = pair.get(), i](unsigned) { pass(*p, i); });
    pairs_.push_back(std::move(pair));
  }
  void pass(Pair& p, int from) {
    if (!passes || p.bytes[from] >= bytes_max) {
      loop_.change(p.ends[from].get(), 0);
      return;
    }
    std::byte part[65536];
    std::size_t most = std::min(sizeof part, bytes_max - p.bytes[from]);
    ssize_t n = ::recv(p.ends[from].get(), part, most, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return end(p);
    bytes += static_cast<std::size_t>(n);
    p.bytes[from] += static_cast<std::size_t>(n);
    for (ssize_t sent = 0; sent < n;) {
      ssize_t more = ::send(p.ends[1 - from].get(), part + sent, static_cast<std::size_t>(n - sent),
                            MSG_NOSIGNAL);
      if (more < 0 && errno == EAGAIN) continue;  // the other side is this very thread, with large buffers
      if (more <= 0) return end(p);
      sent += more;
    }
  }
  void end(Pair& p) {
    if (!std::exchange(p.is_open, false)) return;
    for (Fd& fd : p.ends) {
      loop_.unwatch(fd.get());
      fd = Fd();
    }
  }

  ports::Loop& loop_;
  std::string to_;
  Port port_;
  Fd listener_;
  std::vector<std::unique_ptr<Pair>> pairs_;
};

struct SeveralPathsTest : PeerNetTest {
  Detour one{*loop, ports[2].address()}, two{*loop, ports[2].address()};
  Duration peer_timeout = NetOptions().timeout;

  NetOptions of_a() {
    NetOptions o = options(1, 2);
    o.peers[0].addresses = {one.address(), two.address()};
    return o;
  }
  void connect(stream::PathUse use = stream::PathUse::spares) {
    NetOptions from = of_a(), to = options(2, 1);
    from.peers[0].paths = to.peers[0].paths = use;
    from.timeout = to.timeout = peer_timeout;
    ASSERT_TRUE(start(b, to));
    ASSERT_TRUE(start(a, from));
    run_until([&] { return a.up() && b.up(); });
    run_until_usable(2);
  }
  static std::size_t usable(const Node& n, ReplicaId peer) {
    auto all = n.net->paths(peer);
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [](const PathStatus& p) { return p.state == PathStatus::State::usable; }));
  }
  void run_until_usable(std::size_t count) {
    run_until([&] { return usable(a, 2) == count && usable(b, 1) == count; });
  }
  void expect_talk() {
    for (auto [from, to, id] : {std::tuple{&a, &b, ReplicaId{2}}, std::tuple{&b, &a, ReplicaId{1}}}) {
      std::vector<PeerMessage> sent;
      to->got.clear();
      for (std::size_t i = 0; i < 20; ++i) {
        RecordMessage m{{1, volume}, std::vector<std::byte>(200), std::vector<std::byte>(i * 2 * block_size)};
        random.fill(m.payload);
        from->net->send(id, m);
        from->net->flush();
        sent.emplace_back(std::move(m));
      }
      run_until([&] { return to->got.size() == sent.size(); });
      EXPECT_TRUE(to->got == sent);
    }
  }
  void expect_no_loss() {
    EXPECT_EQ(a.ups + b.ups, 2);
    EXPECT_EQ(a.downs + b.downs, 0);
  }
};

TEST_F(SeveralPathsTest, TheFirstCarriesAndTheOtherIsASpare) {
  connect();
  auto paths = a.net->paths(2);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0].address, one.address());
  EXPECT_TRUE(paths[0].carries && !paths[1].carries);
  EXPECT_TRUE(paths[0].round_trip);
  EXPECT_EQ(b.net->paths(1)[1].address, "127.0.0.1");
  std::size_t before = two.bytes;
  expect_talk();
  EXPECT_LT(two.bytes, before + 20'000) << "signs of life alone";
  EXPECT_TRUE(a.noticed("path 2 to replica 2 (" + two.address() + ") is there"));
}

// More at once than one socket takes. A path that is expected to be faster may carry everything else.
TEST_F(SeveralPathsTest, BothCarryTogether) {
  connect(stream::PathUse::together);
  std::size_t before[] = {one.bytes, two.bytes};
  std::vector<PeerMessage> sent;
  for (int i = 0; i < 12; ++i) {
    RecordMessage m{{1, volume}, std::vector<std::byte>(200), std::vector<std::byte>(480 * block_size)};
    random.fill(m.payload);
    a.net->send(2, m);
    sent.emplace_back(std::move(m));
  }
  a.net->flush();
  run_until([&] { return b.got.size() == sent.size(); });
  EXPECT_TRUE(b.got == sent);
  EXPECT_GT(one.bytes, before[0] + 200'000);
  EXPECT_GT(two.bytes, before[1] + 200'000);
  expect_talk();
}

TEST_F(SeveralPathsTest, ACutPathCostsNoConnectionAndComesBack) {
  for (auto use : {stream::PathUse::spares, stream::PathUse::together}) {
    connect(use);
    for (Detour* cut : {&one, &two}) {
      a.notices.clear();
      cut->close();
      expect_talk();
      std::string name = fmt::format("path {} to replica 2 ({})", cut == &one ? 1 : 2, cut->address());
      run_until([&] { return a.noticed(name + " is lost: ") && a.noticed(name + " cannot be used: "); });
      EXPECT_EQ(usable(a, 2), 1u);
      auto lost = a.net->paths(2)[cut == &one ? 0 : 1];
      EXPECT_TRUE(lost.state == PathStatus::State::down && !lost.why.empty());
      cut->open();
      run_until_usable(2);
      expect_talk();
    }
    expect_no_loss();
    a = {};
    b = {};
    ASSERT_TRUE(loop->turn(Duration(0)));
  }
}

// The peer has time for the five late looks at a path of a busy machine.
TEST_F(SeveralPathsTest, ASilentPathIsLostSoonerThanThePeer) {
  peer_timeout = std::chrono::seconds(30);
  connect();
  one.passes = false;
  expect_talk();
  EXPECT_TRUE(a.noticed("path 1 to replica 2 (" + one.address() + ") is lost: nothing has arrived by it") ||
              b.noticed("path 1 to replica 1 (127.0.0.1) is lost: nothing has arrived by it"));
  expect_no_loss();
}

TEST_F(SeveralPathsTest, AnotherAddressIsTriedWhenTheFirstIsDown) {
  one.close();
  NetOptions from = of_a();
  ASSERT_TRUE(start(b, options(2, 1)));
  ASSERT_TRUE(start(a, from));
  run_until([&] { return a.up() && b.up(); });
  EXPECT_EQ(two.callers, 1);
  expect_talk();
  one.open();
  run_until_usable(2);
  EXPECT_TRUE(a.net->paths(2)[0].carries) << "the preferred one";
  run_until([&] { return b.net->paths(1)[0].carries; });
  two.close();
  expect_talk();
  expect_no_loss();
}

TEST_F(SeveralPathsTest, AnAnswerOfASilentAddressIsNotWaitedForLong) {
  one.passes = false;
  NetOptions from = of_a();
  from.timeout = std::chrono::milliseconds(1500);
  ASSERT_TRUE(start(b, options(2, 1)));
  ASSERT_TRUE(start(a, from));
  run_until([&] { return a.up() && b.up(); });
  EXPECT_EQ(two.callers, 1);
}

TEST_F(SeveralPathsTest, TheLossOfAllPathsIsTheLossOfThePeer) {
  connect();
  one.close();
  two.close();
  run_until([&] { return !a.up() && !b.up(); });
  one.open();
  run_until([&] { return a.up() && b.up(); });
  expect_talk();
}

TEST_F(SeveralPathsTest, AddressesChangeWhileTheLinkIsUsed) {
  Detour three(*loop, ports[2].address());
  connect();
  a.net->set_addresses(2, {one.address(), three.address()});
  run_until([&] { return three.callers > 0; });
  run_until_usable(2);
  EXPECT_EQ(a.net->paths(2)[1].address, three.address());
  a.net->set_addresses(2, {three.address()});
  run_until([&] { return a.net->paths(2).size() == 1 && a.net->paths(2)[0].address == three.address(); });
  a.net->set_addresses(2, {three.address(), two.address()});
  run_until_usable(2);
  expect_talk();
  expect_no_loss();
}

TEST_F(SeveralPathsTest, AReleaseThatKnowsOnePathGetsOne) {
  NetOptions to = options(2, 1);
  to.self.features = features_known & ~feature_paths;
  ASSERT_TRUE(start(b, to));
  ASSERT_TRUE(start(a, of_a()));
  run_until([&] { return a.up() && b.up(); });
  EXPECT_TRUE(a.noticed("knows one path for each link"));
  EXPECT_TRUE(a.net->paths(2).empty());
  expect_talk();
}

// A caller may know the volume, and not the link.
TEST_F(SeveralPathsTest, APathOfNoLinkIsRefused) {
  connect();
  auto refused = [&](const Identity& self, unsigned number, std::string_view why) {
    Handshake mine(self, ByStream{}, Handshake::Direction::dialed, 2, random);
    mine.join({LinkKey{}, number, 0});
    Fd fd = call();
    for (const auto& m : mine.take_output()) say(fd, framed(m.type, m.payload));
    EXPECT_TRUE(hear_until_closed(fd).empty());
    EXPECT_TRUE(b.noticed(why)) << why << b.notices.back();
  };
  refused({volume, 1000, 1, {}}, 1, "a path of a link that is not there any more");
  refused({volume, 1000, 3, {}}, 1, "a path of a link that is not there any more");
  refused({volume, 1000, 1, {}}, paths_max, "path 8 of a link");
  refused({Uuid::parse("3f2e2d2c-4b5a-4978-8695-a4b3c2d1e0ff").value(), 1000, 1, {}}, 1, "serves volume");
  EXPECT_EQ(usable(a, 2), 2u);
  expect_talk();
  expect_no_loss();
}

TEST_F(SeveralPathsTest, ALinkOfOnePathTakesNoOther) {
  ASSERT_TRUE(start(b, options(2, 1)));
  ASSERT_TRUE(start(a, options(1, 2)));
  run_until([&] { return a.up() && b.up(); });
  Handshake mine({volume, 1000, 1, {}}, ByStream{}, Handshake::Direction::dialed, 2, random);
  mine.join({LinkKey{}, 1, 0});
  Fd fd = call();
  for (const auto& m : mine.take_output()) say(fd, framed(m.type, m.payload));
  EXPECT_TRUE(hear_until_closed(fd).empty());
  expect_no_loss();
}

// It can be called, and data of full size does not get through. The log says so once. On a busy machine, an
// attempt may fail for another reason, which the log has too.
TEST_F(SeveralPathsTest, APathThatDropsDataIsToldOfOnce) {
  two.bytes_max = 4000;
  ASSERT_TRUE(start(b, options(2, 1)));
  ASSERT_TRUE(start(a, of_a()));
  run_until([&] {
    return a.up() && b.up() && two.callers >= 4 &&
           a.net->paths(2)[1].why.find("nothing has") != std::string::npos;
  });
  std::vector<std::string> told;
  std::copy_if(a.notices.begin(), a.notices.end(), std::back_inserter(told),
               [](const std::string& text) { return text.find("path 2") != std::string::npos; });
  EXPECT_FALSE(told.empty());
  EXPECT_EQ(std::adjacent_find(told.begin(), told.end()), told.end()) << told.back();
  EXPECT_FALSE(b.noticed("path 2"));
  expect_talk();
}

TEST_F(SeveralPathsTest, TheEndOfALinkIsNoStuckConnection) {
  connect();
  for (int i = 0; i < 5; ++i) {
    b.net->set_wanted(1, false);
    run_until([&] { return !a.up(); });
    b.net->set_wanted(1, true);
    run_until([&] { return a.up() && b.up(); });
  }
  EXPECT_LT(one.callers + two.callers, 40);
}

TEST_F(SeveralPathsTest, AddressesBecomeFewerDuringALookUp) {
  NetOptions from = of_a();
  from.peers[0].addresses = {one.address(), "peer.example:7788"};
  auto answer = std::make_shared<std::promise<void>>();
  from.resolve = [waits = answer->get_future().share(),
                  to = ports[2].address()](const std::string&) -> Result<std::vector<Address>> {
    waits.wait();
    return std::vector<Address>{*numeric_address(to)};
  };
  one.close();
  ASSERT_TRUE(start(b, options(2, 1)));
  ASSERT_TRUE(start(a, from));
  run_until(
      [&] { return a.net->trouble(2).find("peer.example") != std::string::npos || a.noticed("refused"); });
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(2)));
  a.net->set_addresses(2, {two.address()});
  a.net->trouble(2);
  answer->set_value();
  run_until([&] { return a.up() && b.up(); });
  expect_talk();
}

// By TLS each path proves anew who is at its other end.
TEST_F(SeveralPathsTest, EachPathHasACertificate) {
  auto authority = tls::make_authority("Twinloft", {clock.wall(), 30}).value();
  auto with = [&](ReplicaId id) {
    auto made = tls::issue(authority, {"a replica", {certificate_name(volume, id)}}, {clock.wall(), 10})
                    .value();
    return LinkSecurity{
        stream::TlsContext::by_certificates({made.certificate, made.key, authority.certificate}).value()};
  };
  NetOptions from = of_a(), to = options(2, 1);
  from.security = with(1);
  to.security = with(2);
  ASSERT_TRUE(start(b, to));
  ASSERT_TRUE(start(a, from));
  run_until([&] { return a.up() && b.up(); });
  run_until_usable(2);
  expect_talk();
  EXPECT_EQ(a.net->protection(2)->kind, LinkProtection::Kind::certificate);
  one.close();
  run_until([&] { return usable(a, 2) == 1; });
  b.net->set_security(with(3));  // for later connections
  one.open();
  run_until([&] { return a.noticed("its certificate is for " + certificate_name(volume, 3)); });
  EXPECT_EQ(usable(a, 2), 1u);
  expect_talk();
  expect_no_loss();
}

}  // namespace
}  // namespace twinloft::repl::net
