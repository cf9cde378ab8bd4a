// How a peer is found, and when a connection counts: names that do not resolve or move, and paths that drop
// data.
#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "peer_net_fixture.h"

namespace twinloft::repl::net {
namespace {

// The look-ups of names, their threads, and the answers of the test.
struct Names {
  std::mutex mutex;
  std::string answer;  // host:port; empty: no answer
  std::set<std::thread::id> asked_on;
  int asked = 0;

  auto resolver() {
    return [this](const std::string& text) -> Result<std::vector<Address>> {
      std::lock_guard lock(mutex);
      ++asked;
      asked_on.insert(std::this_thread::get_id());
      if (answer.empty()) return fail(Errc::unavailable, "\"{}\": no answer", text);
      return std::vector<Address>{*numeric_address(answer)};
    };
  }
  void set(std::string text) {
    std::lock_guard lock(mutex);
    answer = std::move(text);
  }
  int count() {
    std::lock_guard lock(mutex);
    return asked;
  }
};

TEST_F(PeerNetTest, ANameIsLookedUpAtEachAttempt) {
  Names names;
  NetOptions o = options(1, 2);
  o.peers[0].addresses = {"peer.example:7788"};
  o.resolve = names.resolver();
  ASSERT_TRUE(start(a, o));
  run_until([&] { return a.noticed("replica 2 cannot be looked up: \"peer.example:7788\": no answer"); });
  ASSERT_TRUE(start(b, options(2, 1)));
  names.set(ports[2].address());
  run_until([&] { return a.up() && b.up(); });
  // The peer moves, and its name gets the new address.
  b = {};
  run_until([&] { return !a.up(); });
  NetOptions moved = options(2, 1);
  moved.listen = {ports[0].address()};
  ASSERT_TRUE(start(b, moved));
  int before = names.count();
  run_until([&] { return names.count() > before + 2; });
  EXPECT_FALSE(a.up());
  names.set(ports[0].address());
  run_until([&] { return a.up() && b.up(); });
  EXPECT_FALSE(names.asked_on.contains(std::this_thread::get_id()))
      << "the owner's thread waits for no name server";
}

TEST_F(PeerNetTest, ANameOfItsOwnIsLookedUpUntilItIsKnown) {
  Names names;
  NetOptions o = options(2, 1);
  o.listen = {"own.example:7788"};
  o.listen_again = std::chrono::milliseconds(5);
  o.resolve = names.resolver();
  ASSERT_TRUE(start(b, o));
  run_until([&] { return b.noticed("cannot listen for replication: \"own.example:7788\": no answer"); });
  names.set(ports[2].address());
  ASSERT_TRUE(start(a, options(1, 2)));
  run_until([&] { return a.up() && b.up(); });
}

TEST_F(PeerNetTest, ASilentNameServerHoldsUpNobody) {
  auto answer = std::make_shared<std::promise<void>>();
  auto asked = std::make_shared<std::atomic<int>>(0);
  NetOptions o = options(1, 2);
  o.peers[0].addresses = {"peer.example:7788"};
  o.resolve = [waits = answer->get_future().share(),
               asked](const std::string& text) -> Result<std::vector<Address>> {
    ++*asked;
    waits.wait();
    return fail(Errc::unavailable, "\"{}\": too late", text);
  };
  ASSERT_TRUE(start(a, std::move(o)));
  run_until([&] { return *asked == 1; });
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(5)));
  EXPECT_EQ(*asked, 1) << "one thread for each peer";
  EXPECT_NE(a.net->trouble(2).find("\"peer.example:7788\" is being looked up"), std::string::npos)
      << a.net->trouble(2);
  Fd fd = call();  // the loop continues, and the end does not wait for the look-up either
  a = {};
  answer->set_value();
  while (asked.use_count() > 1) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
}

TEST_F(PeerNetTest, ALookedUpAddressNeedsTlsToo) {
  Names names;
  names.set("192.0.2.1:7788");
  NetOptions o = options(1, 2);
  o.peers[0].addresses = {"peer.example:7788"};
  o.resolve = names.resolver();
  ASSERT_TRUE(start(a, o));
  run_until([&] { return a.noticed("replication over 192.0.2.1:7788 needs TLS"); });
}

// ---- the trial

// Small packets get through, large packets do not. The connection does not count, and the log says why.
TEST_F(PeerNetTest, APathThatDropsDataIsNoConnection) {
  ASSERT_TRUE(start(b, options(2, 1)));
  Fd fd = connect_as_1(false);
  say(fd, framed(WireType::trial_taken));  // as far as b can tell, its own trial gets through
  clock.take();
  for (int i = 0; i < 20; ++i) {
    clock.hand = clock.hand + std::chrono::milliseconds(299);
    say(fd, framed(WireType::ping));
    for (int turn = 0; turn < 5; ++turn) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  }
  EXPECT_EQ(b.notices.size(), 0u) << "not before the timeout: " << b.notices.back();
  clock.hand = clock.hand + std::chrono::milliseconds(100);
  run_until([&] {
    return b.noticed("replica 1 can be connected, but 128 KiB of data did not get through within 6000 ms");
  });
  EXPECT_EQ(b.ups, 0) << "the connection never counted";
  EXPECT_NE(b.net->trouble(1).find("compare the MTU"), std::string::npos);
}

TEST_F(PeerNetTest, NothingIsSaidBeforeTheTrialIsOver) {
  ASSERT_TRUE(start(b, options(2, 1)));
  std::vector<std::byte> payload;
  encode_peer_message(Refuse{"too early"}, payload);
  for (const auto& bad : {framed(40, payload), framed(WireType::trial, 1),
                          framed(static_cast<std::uint16_t>(WireType::trial_taken), payload)}) {
    Fd fd = connect_as_1(false);
    say(fd, bad);
    hear_until_closed(fd);
    EXPECT_TRUE(b.noticed("in the trial"));
    b.notices.clear();
  }
  EXPECT_TRUE(b.got.empty());
  EXPECT_EQ(b.ups, 0);
}

// Each attempt over a path that drops data comes later than the attempt before.
TEST_F(PeerNetTest, AfterAPathThatDropsDataTheNextAttemptWaitsLonger) {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int one = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  Address at = *numeric_address(ports[2].address());
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at.storage), at.length), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  NetOptions o = options(1, 2);
  o.redial = std::chrono::seconds(1);
  o.redial_max = std::chrono::seconds(5);
  clock.take();
  ASSERT_TRUE(start(a, o));
  auto accepted = [&] {
    for (int turn = 0; turn < 3; ++turn) EXPECT_TRUE(loop->turn(std::chrono::milliseconds(1)));
    return Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  };
  for (int pause : {2, 4, 5, 5}) {  // seconds after the loss of the connection
    Fd fd = accepted();
    ASSERT_TRUE(fd) << pause;
    Handshake mine({volume, 1000, 2, {}, feature_buffers}, ByStream{}, Handshake::Direction::accepted, 0,
                   random);
    auto header = decode_wire_header(hear(fd, wire_header_bytes));
    EXPECT_TRUE(mine.receive(header->type, hear(fd, header->payload_bytes)).value());
    for (const auto& m : mine.take_output()) say(fd, framed(m.type, m.payload));
    hear(fd, wire_header_bytes + trial_bytes);  // the trial is not answered
    clock.hand = clock.hand + std::chrono::seconds(7);
    run_until([&] { return a.noticed("did not get through"); });
    hear_until_closed(fd);
    clock.hand = clock.hand + (std::chrono::seconds(pause) - std::chrono::milliseconds(10));
    EXPECT_FALSE(accepted()) << "not before " << pause << " s";
    clock.hand = clock.hand + std::chrono::milliseconds(20);
  }
  EXPECT_EQ(a.ups, 0);
}

}  // namespace
}  // namespace twinloft::repl::net
