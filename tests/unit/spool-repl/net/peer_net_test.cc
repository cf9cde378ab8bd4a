// PeerNet over loopback on the real event loop.
#include "peer_net_fixture.h"

namespace twinloft::repl::net {
namespace {

TEST_F(PeerNetTest, TwoNodesConnectAndTalk) {
  connect_both();
  std::uint64_t without_codecs = feature_buffers | feature_frames | feature_short_records | feature_reads |
                                 feature_relays | 1u << codecs_shift;
  EXPECT_EQ(a.net->features(2), without_codecs | feature_paths);
  EXPECT_EQ(b.net->features(1), without_codecs) << "a has one address of b";
  Epoch epoch{3, volume};
  std::vector<PeerMessage> there = {MatchRequest{epoch}, Probe{{Lsn{4}, {}}}, Refuse{"no"}};
  std::vector<PeerMessage> back = {MatchState{epoch, {}, {}, Lsn{9}}, Ack{epoch, Lsn{1}, {}}};
  for (const auto& m : there) a.net->send(2, m);
  for (const auto& m : back) b.net->send(1, m);
  a.net->flush();
  b.net->flush();
  run_until([&] { return b.got.size() == there.size() && a.got.size() == back.size(); });
  EXPECT_EQ(b.got, there);
  EXPECT_EQ(a.got, back);
  EXPECT_EQ(a.ups, 1);
  EXPECT_EQ(a.downs + b.downs, 0);
}

TEST_F(PeerNetTest, TheLargestRecordsArriveWholeAndInOrder) {
  connect_both();
  SeededRandom bytes(5);
  std::vector<PeerMessage> sent;
  for (int i = 0; i < 8; ++i) {
    RecordMessage m{{static_cast<std::uint64_t>(i), volume},
                    std::vector<std::byte>(body_meta_bytes_max),
                    std::vector<std::byte>(std::size_t{record_payload_blocks_max} * block_size)};
    bytes.fill(m.meta);
    bytes.fill(m.payload);
    // In three pieces, as in the arena, followed by a small message.
    ByteSpan meta = m.meta, payload = m.payload;
    ByteSpan pieces[] = {meta, payload.first(block_size), payload.subspan(block_size)};
    a.net->send_record(2, m.epoch, body_meta_bytes_max, pieces);
    a.net->send(2, Commit{m.epoch, {}});
    sent.push_back(m);
    sent.push_back(Commit{m.epoch, {}});
    a.net->flush();
    std::fill(m.payload.begin(), m.payload.end(), std::byte{0});  // reusable after flush()
  }
  run_until([&] { return b.got.size() == sent.size(); });
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_TRUE(b.got[i] == sent[i]) << i;
}

// Records of text, of zeros, and with blocks that repeat, while the codec changes.
TEST_F(PeerNetTest, RecordsArriveThroughEveryCodec) {
  auto pool = std::make_shared<stream::WorkPool>(2);
  NetOptions one = options(1, 2), two = options(2, 1);
  one.pool = two.pool = pool;
  one.peers[0].packing = {compress::Method{compress::Codec::zstd, 0}, stream::LinkClass::bulk};
  ASSERT_TRUE(start(a, std::move(one)));
  ASSERT_TRUE(start(b, std::move(two)));
  run_until([&] { return a.up() && b.up(); });
  EXPECT_EQ(a.net->features(2), features_known);
  std::vector<PeerMessage> sent;
  for (unsigned i = 0; i < 40; ++i) {
    RecordMessage m{{i, volume}, std::vector<std::byte>(300, std::byte('m')), {}};
    m.payload.resize((1 + i % 9 * 20) * std::size_t{block_size});
    for (std::size_t at = 0; at < m.payload.size() && i % 3 != 0; ++at)
      m.payload[at] = std::byte("some words of a letter "[at % (i % 3 == 1 ? 23 : 16)]);
    a.net->set_packing(2, {compress::Method{compress::all_codecs[i % 5], 0}, stream::LinkClass::bulk});
    ByteSpan meta = m.meta, payload = m.payload;
    ByteSpan pieces[] = {meta, payload.first(block_size), payload.subspan(block_size)};
    a.net->send_record(2, m.epoch, 300, pieces);
    a.net->send(2, Commit{m.epoch, {}});
    a.net->flush();
    sent.push_back(m);
    sent.push_back(Commit{m.epoch, {}});
    if (i % 4 == 0) {
      ASSERT_TRUE(loop->turn(Duration(0)));
    }
  }
  run_until([&] { return b.got.size() == sent.size(); });
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_TRUE(b.got[i] == sent[i]) << i;
  auto status = a.net->packing_status(2);
  ASSERT_TRUE(status);
  EXPECT_LT(status->out_line, status->out_raw);
  EXPECT_GT(status->out_raw, 100'000u);
}

TEST_F(PeerNetTest, BlocksOfZerosAndRepetitionsAreNotSent) {
  connect_both();
  std::uint64_t before = a.net->packing_status(2)->out_line;
  RecordMessage m{
      {1, volume}, std::vector<std::byte>(300), std::vector<std::byte>(200 * std::size_t{block_size})};
  for (std::size_t at = 0; at < 100 * std::size_t{block_size}; ++at)
    m.payload[at] = std::byte(at % block_size % 251);
  expect_arrives(m);
  EXPECT_LT(a.net->packing_status(2)->out_line - before, block_size + 600u);
}

TEST_F(PeerNetTest, AReleaseWithoutShortRecordsGetsWholeRecords) {
  NetOptions old = options(2, 1);
  old.self.features = feature_buffers;
  ASSERT_TRUE(start(a, options(1, 2)));
  ASSERT_TRUE(start(b, std::move(old)));
  run_until([&] { return a.up() && b.up(); });
  EXPECT_FALSE(a.net->packing_status(2));
  RecordMessage m{
      {1, volume}, std::vector<std::byte>(300), std::vector<std::byte>(3 * std::size_t{block_size})};
  expect_arrives(m);
}

TEST_F(PeerNetTest, ComesBackByItselfAfterALoss) {
  connect_both();
  for (int round = 1; round <= 3; ++round) {
    b.net.reset();
    run_until([&] { return a.downs == round; });
    EXPECT_TRUE(a.noticed("closed the connection"));
    b.ups = b.downs = 0;
    ASSERT_TRUE(start(b, options(2, 1)));
    run_until([&] { return a.up() && b.up(); });
  }
  a.net->send(2, Refuse{"still here"});
  a.net->flush();
  run_until([&] { return b.got.size() == 1; });
}

TEST_F(PeerNetTest, ComesBackAfterARefusalByEitherSide) {
  connect_both();
  a.net->close(2, "try again");
  run_until([&] { return a.ups == 2 && b.ups == 2; });
  EXPECT_TRUE(a.noticed("try again"));
  b.net->close(1, "and again");
  run_until([&] { return a.ups == 3 && b.ups == 3; });
  EXPECT_EQ(a.downs, 2);
  EXPECT_EQ(b.downs, 2);
}

TEST_F(PeerNetTest, TheDialerWaitsUntilThePeerListens) {
  ASSERT_TRUE(start(a, options(1, 2)));
  run_until([&] { return a.noticed("cannot connect"); });
  ASSERT_TRUE(start(b, options(2, 1)));
  run_until([&] { return a.up() && b.up(); });
  std::size_t same = 0;
  for (const auto& n : a.notices) same += n.find("cannot connect") != std::string::npos;
  EXPECT_EQ(same, 1u) << "a repeated reason is reported once";
}

TEST_F(PeerNetTest, PingsKeepASilentLinkAlive) {
  connect_both();
  clock.take();
  for (int i = 0; i < 100; ++i) {  // ten times the timeout
    clock.hand = clock.hand + std::chrono::milliseconds(600);
    for (int turn = 0; turn < 5; ++turn) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  }
  EXPECT_EQ(a.downs + b.downs, 0);
  EXPECT_TRUE(a.got.empty() && b.got.empty()) << "pings are not passed to the owner";
}

TEST_F(PeerNetTest, APeerThatFallsSilentIsLost) {
  ASSERT_TRUE(start(b, options(2, 1)));
  Fd fd = connect_as_1();
  run_until([&] { return b.up(); });
  clock.take();
  clock.hand = clock.hand + std::chrono::milliseconds(5900);
  for (int turn = 0; turn < 5; ++turn) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  EXPECT_TRUE(b.up()) << "not before the timeout";
  clock.hand = clock.hand + std::chrono::seconds(6);
  run_until([&] { return !b.up(); });
  EXPECT_TRUE(b.noticed("nothing from replica 1 for 6000 ms")) << b.notices.back();
}

// Not only at the next check of the clock, because this time is part of every failover.
TEST_F(PeerNetTest, ASilentPeerIsLostRightAtTheTimeout) {
  ASSERT_TRUE(start(b, options(2, 1)));
  Fd fd = connect_as_1();
  run_until([&] { return b.up(); });
  clock.take();
  auto pass = [&](int milliseconds) {
    clock.hand = clock.hand + std::chrono::milliseconds(milliseconds);
    for (int turn = 0; turn < 5; ++turn) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  };
  pass(1000);
  say(fd, framed(static_cast<std::uint16_t>(WireType::ping), {}));
  pass(0);
  pass(5999);
  EXPECT_TRUE(b.up()) << "not before the timeout";
  pass(2);
  EXPECT_FALSE(b.up()) << "2 ms later";
}

// The volume is served meanwhile, and reports why no peer can connect.
TEST_F(PeerNetTest, APortInUseIsTriedAgain) {
  ASSERT_TRUE(start(b, options(2, 1)));
  Node second;
  NetOptions o = options(2, 1);
  o.listen_again = std::chrono::milliseconds(5);
  ASSERT_TRUE(start(second, o));
  std::string trouble = "cannot listen for replication: " + ports[2].address() + ": Address already in use";
  EXPECT_TRUE(second.noticed(trouble)) << second.notices.back();
  EXPECT_EQ(second.net->trouble(1), trouble);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(5)));
  EXPECT_EQ(second.notices.size(), 1u) << "a repeated reason is reported once";
  b = {};
  run_until([&] { return second.noticed("listening on " + ports[2].address() + " now"); });
  EXPECT_EQ(second.net->trouble(1), "");
  ASSERT_TRUE(start(a, options(1, 2)));
  run_until([&] { return a.up() && second.up(); });
}

TEST_F(PeerNetTest, GarbageClosesThatConnectionOnly) {
  connect_both();
  for (std::string garbage : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100, '\0'),
                              std::string(5000, '\xff')}) {
    Fd fd = call();
    say(fd, as_bytes(garbage));
    hear_until_closed(fd);
  }
  EXPECT_TRUE(b.noticed("not use the replication protocol"));
  EXPECT_EQ(a.downs + b.downs, 0);
  a.net->send(2, Refuse{"undisturbed"});
  a.net->flush();
  run_until([&] { return b.got.size() == 1; });
}

TEST_F(PeerNetTest, AnOversizedMessageInTheHandshakeCloses) {
  ASSERT_TRUE(start(b, options(2, 1)));
  Fd fd = call();
  std::vector<std::byte> header(wire_header_bytes);
  encode_wire_header({1, handshake_payload_max + 1, 0}, header);
  say(fd, header);
  hear_until_closed(fd);
  EXPECT_TRUE(b.noticed("bytes in the handshake"));
}

TEST_F(PeerNetTest, PeerMessagesInTheHandshakeClose) {
  ASSERT_TRUE(start(b, options(2, 1)));
  Fd fd = call();
  std::vector<std::byte> payload;
  encode_peer_message(Refuse{"let me in"}, payload);
  say(fd, framed(40, payload));
  hear_until_closed(fd);
  EXPECT_TRUE(b.got.empty());
  EXPECT_EQ(b.ups, 0);
}

// The test performs the handshake itself, with any split of the bytes.
TEST_F(PeerNetTest, ByteByByteIsAsGoodAsWhole) {
  for (std::size_t split : {std::size_t{1}, std::size_t{7}, std::size_t{100000}}) {
    b = {};
    ASSERT_TRUE(loop->turn(Duration(0)));  // the kernel closes the old listener
    ASSERT_TRUE(start(b, options(2, 1)));
    Fd fd = call();
    Handshake mine({volume, 1000, 1, {}, feature_buffers}, ByStream{}, Handshake::Direction::dialed, 2,
                   random);
    auto say_split = [&](std::vector<std::byte> bytes) {
      for (std::size_t at = 0; at < bytes.size(); at += split) {
        say(fd, ByteSpan(bytes).subspan(at, std::min(split, bytes.size() - at)));
        ASSERT_TRUE(loop->turn(Duration(0)));
      }
    };
    auto receive = [&] {
      auto header = decode_wire_header(hear(fd, wire_header_bytes));
      EXPECT_TRUE(header);
      auto payload = hear(fd, header->payload_bytes);
      auto done = mine.receive(header->type, payload);
      EXPECT_TRUE(done) << done.error().message;
    };
    auto speak = [&] {
      for (const auto& m : mine.take_output()) say_split(framed(m.type, m.payload));
    };
    speak();
    receive();
    pass_trial(fd);
    run_until([&] { return b.up(); });
    PeerMessage message = RecordMessage{
        {1, volume}, std::vector<std::byte>(200), std::vector<std::byte>(4096)};
    std::vector<std::byte> payload;
    encode_peer_message(message, payload);
    say_split(framed(wire_type(message), payload));
    run_until([&] { return b.got.size() == 1; });
    EXPECT_EQ(b.got[0], message);

    auto damaged = framed(wire_type(message), payload);
    damaged.back() ^= std::byte{1};
    say_split(damaged);
    run_until([&] { return b.downs == 1; });
    EXPECT_TRUE(b.noticed("wrong CRC"));
    EXPECT_EQ(b.got.size(), 1u);
  }
}

TEST_F(PeerNetTest, ANewerConnectionOfThePeerReplacesTheOldOne) {
  ASSERT_TRUE(start(b, options(2, 1)));
  Fd first = connect_as_1();
  run_until([&] { return b.ups == 1; });
  Fd second = connect_as_1();
  run_until([&] { return b.ups == 2; });
  EXPECT_EQ(b.order, "up down up ");
  hear_until_closed(first);
  b.net->send(1, Refuse{"to the newer one"});
  b.net->flush();
  EXPECT_TRUE(decode_wire_header(hear(second, wire_header_bytes)));
}

TEST_F(PeerNetTest, StrangersCannotFillTheTable) {
  NetOptions o = options(2, 1);
  o.timeout = std::chrono::milliseconds(50);
  ASSERT_TRUE(start(b, o));
  std::vector<Fd> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(call());
  run_until([&] { return b.noticed("too many"); });
  // All callers are silent, except one that sends byte by byte. All are disconnected after the timeout.
  auto hello = framed(1, std::vector<std::byte>(100));
  std::size_t said = 0;
  bool closed = false;
  while (!closed) {
    ssize_t n = ::send(strangers[0].get(), hello.data() + std::min(said++, std::size_t{50}), 1, MSG_NOSIGNAL);
    closed = n < 0 && errno != EAGAIN;
    ASSERT_TRUE(loop->turn(std::chrono::milliseconds(5)));
    ASSERT_LT(said, 100000u);
  }
  for (const Fd& fd : strangers) hear_until_closed(fd);
  ASSERT_TRUE(start(a, options(1, 2)));
  run_until([&] { return a.up() && b.up(); });
}

// The most callers that each address may have, all silent. The peer connects from one of these addresses.
TEST_F(PeerNetTest, ThePeerGetsThroughWhileStrangersCall) {
  NetOptions o = options(2, 1);
  o.timeout = o.handshake = std::chrono::hours(1);
  ASSERT_TRUE(start(b, o));
  std::vector<Fd> strangers;
  for (int host = 1; host <= 12; ++host)
    for (int i = 0; i < 8; ++i) strangers.push_back(call(host));
  run_until([&] { return b.noticed("too many connections at a time: the caller at 127.0.0."); });
  ASSERT_TRUE(start(a, options(1, 2)));
  run_until([&] { return a.up() && b.up(); });
  for (int i = 0; i < 20; ++i) strangers.push_back(call(1));
  a.net->close(2, "once more");
  run_until([&] { return a.ups == 2 && b.ups == 2; });
}

TEST_F(PeerNetTest, StrangersDoNotFillTheLog) {
  ASSERT_TRUE(start(b, options(2, 1)));
  clock.take();
  for (std::uint32_t i = 1; i <= 40; ++i) {
    Fd fd = call();
    std::vector<std::byte> header(wire_header_bytes);
    encode_wire_header({1, handshake_payload_max + i, 0}, header);  // each with a different message
    say(fd, header);
    hear_until_closed(fd);
  }
  EXPECT_EQ(b.notices.size(), 6u);
  clock.hand = clock.hand + std::chrono::minutes(2);
  Fd fd = call();
  say(fd, as_bytes(std::string(100, 'x')));
  hear_until_closed(fd);
  EXPECT_EQ(b.notices.size(), 8u);
  EXPECT_TRUE(b.noticed("34 more callers were refused"));
}

// No descriptor is left for a new connection. The loop does not spin, and the connection is accepted once a
// descriptor is free.
TEST_F(PeerNetTest, WaitsForDescriptors) {
  ASSERT_TRUE(start(b, options(2, 1)));
  Fd fd = call();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none{0, before.rlim_max};  // open descriptors stay open
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  clock.take();  // the clock stops, so the pause does not end
  for (int i = 0; i < 50 && b.notices.empty(); ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(b.noticed("no connection can be accepted: Too many open files"));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(5)));
  EXPECT_EQ(b.notices.size(), 1u) << "no attempt during the pause";
  std::byte byte;
  EXPECT_EQ(::recv(fd.get(), &byte, 1, 0), -1);
  clock.hand = clock.hand + std::chrono::seconds(1);
  say(fd, as_bytes(std::string(100, 'x')));
  hear_until_closed(fd);
  EXPECT_TRUE(b.noticed("not use the replication protocol"));
}

// The owner's messages use memory that it may free when the loss of the peer is reported.
TEST_F(PeerNetTest, ALostPeerIsToldOnALaterTurn) {
  ASSERT_TRUE(start(b, options(2, 1)));
  {
    Fd fd = connect_as_1();
    run_until([&] { return b.up(); });
    linger reset{1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  // The reset has arrived, but the loop has not seen it yet.
  for (int i = 0; i < 3; ++i) {
    b.net->send(1, Refuse{"too late"});
    b.net->flush();
  }
  EXPECT_TRUE(b.noticed("sending to replica 1"));
  EXPECT_EQ(b.downs, 0);
  run_until([&] { return b.downs == 1; });
}

TEST_F(PeerNetTest, APeerThatTakesNothingIsClosed) {
  NetOptions o = options(2, 1);
  o.unsent_bytes_max = 8u << 20;
  ASSERT_TRUE(start(b, o));
  Fd fd = connect_as_1();
  run_until([&] { return b.up(); });
  PeerMessage large = RecordMessage{
      {1, volume}, std::vector<std::byte>(100), std::vector<std::byte>(1u << 20)};
  int sent = 0;
  for (; sent < 200 && !b.noticed("does not receive"); ++sent) {
    b.net->send(1, large);
    b.net->flush();
    ASSERT_TRUE(loop->turn(Duration(0)));
  }
  EXPECT_GT(sent, 8);
  EXPECT_LT(sent, 200);
  run_until([&] { return b.downs == 1; });
}

TEST(AddressTest, ResolveAndLoopback) {
  EXPECT_TRUE(resolve("127.0.0.1:1")->is_loopback());
  EXPECT_TRUE(resolve("127.9.8.7:1")->is_loopback());
  EXPECT_TRUE(resolve("[::1]:1")->is_loopback());
  EXPECT_TRUE(resolve("localhost:1")->is_loopback());
  EXPECT_FALSE(resolve("0.0.0.0:1")->is_loopback());
  EXPECT_FALSE(resolve("192.0.2.7:1")->is_loopback());
  EXPECT_FALSE(resolve("[2001:db8::1]:1")->is_loopback());
  for (const char* bad :
       {"", "host", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "[::1", "999.0.0.1:1"}) {
    auto out = resolve(bad);
    ASSERT_FALSE(out) << bad;
    EXPECT_NE(out.error().message.find(fmt::format("\"{}\"", bad)), std::string::npos) << out.error().message;
  }
}

// Both sides report the different setting, and try again until the settings agree.
TEST_F(PeerNetTest, PeersThatAreConfiguredOtherwiseAreToldApart) {
  std::string there = "protocol=A\n";
  NetOptions of_a = options(1, 2), of_b = options(2, 1);
  of_a.self.settings = [](ReplicaId) { return std::string("protocol=C\n"); };
  of_b.self.settings = [&](ReplicaId) { return there; };
  ASSERT_TRUE(start(a, of_a));
  ASSERT_TRUE(start(b, of_b));
  run_until([&] { return a.unfit.contains(2) && b.unfit.contains(1); });
  EXPECT_NE(a.unfit[2].find("protocol is \"C\" here and \"A\" there"), std::string::npos) << a.unfit[2];
  EXPECT_NE(b.unfit[1].find("protocol is \"A\" here and \"C\" there"), std::string::npos) << b.unfit[1];
  EXPECT_EQ(a.ups + b.ups, 0);
  EXPECT_EQ(a.net->trouble(2), a.unfit[2]);
  there = "protocol=C\n";
  run_until([&] { return a.up() && b.up(); });
  EXPECT_EQ(a.net->trouble(2), "");
}

TEST(AddressTest, WhatCanBeSaidWithoutANameServer) {
  for (const char* good : {"node-b:7788", "localhost:1", "127.0.0.1:1", "[2001:db8::1]:1", "[fe80::1%lo]:1",
                           "[fe80::1%not-there-yet]:1", "peer.example:0"})
    EXPECT_TRUE(check_address(good)) << good;
  for (const char* bad :
       {"node-b", "node b:1", "1.2.3.400:1", "[2001:db8::g]:1", "[::1:1", "host:x", "a/b:1"})
    EXPECT_FALSE(check_address(bad)) << bad;
  auto scope = check_address("[fe80::1]:7788");
  ASSERT_FALSE(scope);
  EXPECT_NE(scope.error().message.find("\"[fe80::1%eth0]:7788\""), std::string::npos)
      << scope.error().message;
  EXPECT_FALSE(numeric_address("node-b:7788"));
  EXPECT_TRUE(numeric_address("[fe80::1%lo]:1"));
}

}  // namespace
}  // namespace twinloft::repl::net
