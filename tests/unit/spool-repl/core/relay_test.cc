// Relays: a replica that gets its records from another secondary, and the primary that decides about it.
#include <algorithm>

#include "roles.h"

namespace twinloft::repl::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Replica 1 is primary. The replicas from 3 on are at a far site.
struct RelayTest : RolesTest {
  std::uint64_t next_block = 0;

  void make_sites(std::size_t count) {
    nodes.clear();
    up.clear();
    for (ReplicaId id = 1; id <= count; ++id) {
      auto settings = std::exchange(also, nullptr);
      Config c = config_of(id, count);
      c.on_peer_loss = OnPeerLoss::go_on;
      c.site = site_of(id);
      for (PeerConfig& p : c.peers) p.site = site_of(p.id);
      also = std::move(settings);
      if (also) also(id, c);
      nodes.push_back(std::make_unique<Shell>(
          ShellOptions{.replica = id, .config = c, .volume_blocks = 4096, .seed = id}));
    }
    delivered.assign(count, 0);
    connect_all();
    exchange();
    ASSERT_TRUE(promote(1)->ok);
    write(1);
    exchange();
  }
  static std::string site_of(ReplicaId id) { return id <= 2 ? "here" : "there"; }
  std::uint64_t write(int blocks, int value = 7) {
    in = filled(block_size, value);
    for (int i = 0; i < blocks; ++i)
      node(1).submit(ClientOp::write, next_block++ % 2048 * block_size, block_size, in.data());
    return node(1).submit(ClientOp::flush);
  }
  std::size_t bodies(ReplicaId from, ReplicaId to) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < node(from).sent.size(); ++i)
      n += node(from).sent_to[i] == to && std::holds_alternative<RecordMessage>(node(from).sent[i]);
    return n;
  }
  PeerStatus peer(ReplicaId id, ReplicaId of) {
    auto peers = status(node(id)).peers;
    return *std::find_if(peers.begin(), peers.end(), [&](const PeerStatus& p) { return p.id == of; });
  }
  bool says(ReplicaId id, std::string_view text) {
    return std::any_of(node(id).notices.begin(), node(id).notices.end(),
                       [&](const std::string& n) { return n.find(text) != n.npos; });
  }
  // Messages of the replica are not delivered to another one.
  template <class M>
  void lose(ReplicaId to) {
    lost = [to](ReplicaId receiver, const PeerMessage& m) {
      return receiver == to && std::holds_alternative<M>(m);
    };
  }
  void expect_equal() {
    exchange();
    for (ReplicaId id = 1; id <= nodes.size(); ++id) checkpoint(id);
    for (ReplicaId id = 2; id <= nodes.size(); ++id) EXPECT_TRUE(node(1).data == node(id).data) << id;
  }
  void pass(Duration d) {
    for (auto& n : nodes) n->pass_time(d);
    exchange();
  }
};

TEST_F(RelayTest, ABodyCrossesToAFarSiteOnce) {
  make_sites(4);
  EXPECT_EQ(peer(1, 4).relay, 3u);
  EXPECT_EQ(peer(1, 3).relay, 0u);
  EXPECT_TRUE(peer(3, 4).relays_to);
  EXPECT_TRUE(peer(4, 3).takes_from);
  std::size_t direct = bodies(1, 4), to_relay = bodies(1, 3);
  for (int i = 0; i < 20; ++i) {
    auto f = write(3, i + 1);
    exchange();
    EXPECT_TRUE(node(1).is_done(f));
  }
  EXPECT_EQ(bodies(1, 4), direct);
  EXPECT_EQ(bodies(1, 3), to_relay + 20);
  EXPECT_GE(bodies(3, 4), 20u);
  EXPECT_TRUE(peer(1, 4).in_sync);
  expect_equal();
}

// Each replica's own acknowledgement counts, and nothing that a relay has or says.
TEST_F(RelayTest, ANeighbourAcknowledgesForItself) {
  make_sites(4);
  node(4).held = [](Disk kind) { return kind == Disk::journal_write; };
  auto f = write(1);
  exchange();
  EXPECT_FALSE(node(1).is_done(f)) << "not durable at the neighbour";
  EXPECT_EQ(peer(1, 3).durable, status(node(1)).last);
  node(4).held = nullptr;
  exchange();
  EXPECT_TRUE(node(1).is_done(f));
  // The relay's journal is not waited for: the neighbour has the record.
  node(3).held = [](Disk kind) { return kind == Disk::journal_write; };
  write(1);
  exchange();
  EXPECT_EQ(peer(1, 4).durable, status(node(1)).last);
  EXPECT_LT(peer(1, 3).durable, status(node(1)).last);
}

TEST_F(RelayTest, ARelayThatSendsAnotherRecordIsFound) {
  for (bool of_payload : {false, true}) {
    make_sites(4);
    write(1);
    exchange();
    RecordMessage record;
    std::uint64_t seq = said<TakeFrom>(1).back().seq;
    lose<RecordMessage>(4);
    auto f = write(2);
    exchange();
    lost = nullptr;
    EXPECT_FALSE(node(1).is_done(f));
    record = said<RecordMessage>(3).back();
    auto& part = of_payload ? record.payload : record.meta;
    part[part.size() / 2] ^= std::byte{1};
    node(4).input(3, record);
    ASSERT_EQ(said<RelayLost>(4).size(), 1u);
    EXPECT_EQ(said<RelayLost>(4)[0].seq, seq);
    EXPECT_NE(said<RelayLost>(4)[0].why.find(of_payload ? "other content" : "another record"),
              std::string::npos);
    exchange();
    EXPECT_TRUE(node(1).is_done(f)) << "the record came directly";
    EXPECT_EQ(peer(1, 4).relay, 0u);
    EXPECT_TRUE(node(4).closed.empty() && node(1).closed.empty());
    expect_equal();
  }
}

// A whole record of another history, or one more than the primary has.
TEST_F(RelayTest, ARelayCannotForgeOrAddARecord) {
  make_sites(4);
  write(1);
  exchange();
  RecordMessage before = said<RecordMessage>(3).back();
  Lsn last = status(node(4)).last;
  node(4).input(3, before);  // beyond what the primary has told
  EXPECT_EQ(status(node(4)).last, last);
  EXPECT_TRUE(said<RelayLost>(4).empty()) << "its mark may be on the way";
  auto f = write(1, 9);
  exchange();
  EXPECT_EQ(said<RelayLost>(4).size(), 1u);
  EXPECT_TRUE(node(1).is_done(f));
  expect_equal();
}

TEST_F(RelayTest, TheTailOfTheRelayWaitsForItsNeighbour) {
  also = [](ReplicaId id, Config& c) {  // so that no commit waits for the neighbour
    for (PeerConfig& p : c.peers)
      if (id == 4 || p.id == 4) p.protocol = Protocol::A;
  };
  make_sites(4);
  node(4).held = [](Disk kind) { return kind == Disk::journal_write; };
  for (int i = 0; i < 4; ++i) write(200), exchange();
  node(3).step(CheckpointNow{});
  exchange();
  EXPECT_GT(status(node(3)).journal_used, 3u << 20);
  node(4).held = nullptr;
  exchange();
  checkpoint(3);
  EXPECT_LT(status(node(3)).journal_used, 1u << 20);
  expect_equal();
}

TEST_F(RelayTest, AnotherReplicaOfTheSiteTakesOver) {
  make_sites(5);
  EXPECT_EQ(peer(1, 4).relay, 3u);
  EXPECT_EQ(peer(1, 5).relay, 3u);
  write(3);
  exchange();
  std::size_t to_4 = bodies(1, 4), to_5 = bodies(1, 5);
  std::vector<Lsn> had = {status(node(4)).last, status(node(5)).last};
  for (ReplicaId id : {1, 2, 4, 5}) disconnect(std::min<ReplicaId>(3, id), std::max<ReplicaId>(3, id));
  auto f = write(3);
  exchange();
  EXPECT_TRUE(node(1).is_done(f));
  ReplicaId relay = peer(1, 4).relay == 0 ? 4 : 5, other = relay == 4 ? 5 : 4;
  EXPECT_EQ(peer(1, other).relay, relay);
  EXPECT_EQ(peer(1, relay).relay, 0u);
  write(3);
  exchange();
  EXPECT_LE(bodies(1, relay) - (relay == 4 ? to_4 : to_5), 2u) << "nothing is sent again";
  EXPECT_LE(bodies(1, other) - (other == 4 ? to_4 : to_5), 1u);
  for (ReplicaId id : {1, 2, 4, 5}) connect(std::min<ReplicaId>(3, id), std::max<ReplicaId>(3, id));
  expect_equal();
}

TEST_F(RelayTest, WithoutProgressRecordsComeDirectly) {
  make_sites(4);
  lost = [](ReplicaId to, const PeerMessage& m) {
    return to == 4 && std::holds_alternative<RecordMessage>(m);
  };
  auto f = write(2);
  exchange();
  EXPECT_FALSE(node(1).is_done(f));
  lost = nullptr;
  node(1).pass_time(milliseconds(4900));
  exchange();
  EXPECT_FALSE(node(1).is_done(f));
  node(1).pass_time(milliseconds(200));
  exchange();
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_TRUE(says(1, "it did not bring what it had for 5000 ms"));
  EXPECT_EQ(peer(1, 4).relay, 0u);
  // After its rest the relay is asked again, and after another loss later.
  pass(milliseconds(5100));
  EXPECT_EQ(peer(1, 4).relay, 3u);
  lose<RecordMessage>(4);
  write(1);
  exchange();
  lost = nullptr;
  pass(milliseconds(5100));
  EXPECT_EQ(peer(1, 4).relay, 0u);
  pass(milliseconds(9000));
  EXPECT_EQ(peer(1, 4).relay, 0u);
  pass(milliseconds(1500));
  EXPECT_EQ(peer(1, 4).relay, 3u);
  expect_equal();
}

TEST_F(RelayTest, ARelayWithoutAPrimarySaysSo) {
  make_sites(4);
  disconnect(1, 3);
  exchange();
  EXPECT_NE(said<SubscriptionEnded>(3).size(), 0u);
  auto f = write(2);
  exchange();
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_FALSE(peer(3, 4).relays_to);
  connect(1, 3);
  exchange();
  ReplicaId relay = peer(1, 4).relay;
  EXPECT_TRUE(relay == 3 || peer(1, 3).relay == 4);
  expect_equal();
}

TEST_F(RelayTest, ARelayWithAnUnreadableJournalSaysSo) {
  also = [](ReplicaId id, Config& c) {
    for (PeerConfig& p : c.peers)
      if (id == 4 || p.id == 4) p.protocol = Protocol::A;
  };
  make_sites(4);
  disconnect(1, 4);
  disconnect(3, 4);
  for (int i = 0; i < 3; ++i) write(1), exchange();
  connect(1, 4);
  exchange();
  EXPECT_EQ(peer(1, 4).relay, 3u) << "the primary asks, and the neighbour waits for the connection";
  for (int i = 0; i < 3; ++i) write(1), exchange();
  node(3).fault = [](Disk kind) { return kind == Disk::journal_read ? EIO : 0; };
  connect(3, 4);
  exchange();
  ASSERT_EQ(said<RelayLost>(4).size(), 1u);
  EXPECT_NE(said<RelayLost>(4)[0].why.find("cannot be read"), std::string::npos);
  node(3).fault = nullptr;
  expect_equal();
}

// The neighbour has records that have not reached the relay yet.
TEST_F(RelayTest, ARelayBehindItsNeighbourWaits) {
  make_sites(4);
  LogMark future = {status(node(3)).last + 5, {}};
  Epoch epoch = said<TakeFrom>(1).back().epoch;
  std::size_t begun = said<Subscribed>(3).size(), ended = said<SubscriptionEnded>(3).size();
  node(3).input(4, Subscribe{epoch, 901, future});
  EXPECT_EQ(said<Subscribed>(3).size(), begun);
  EXPECT_EQ(said<SubscriptionEnded>(3).size(), ended) << "the record may come";
  node(3).input(4, Subscribe{epoch, 902, {status(node(3)).last, {}}});
  EXPECT_EQ(said<SubscriptionEnded>(3).size(), ended + 1) << "a record of another history";
}

TEST_F(RelayTest, ANeighbourWithoutAConnectionToItsRelayWaits) {
  make_sites(4);
  disconnect(3, 4);
  auto f = write(1);
  exchange();
  EXPECT_TRUE(node(1).is_done(f)) << "the loss is reported at once";
  pass(milliseconds(5100));
  EXPECT_EQ(peer(1, 4).relay, 3u);
  f = write(1);
  exchange();
  EXPECT_FALSE(node(1).is_done(f)) << "the connection may come soon";
  connect(3, 4);
  exchange();
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_EQ(peer(1, 4).relay, 3u);
  disconnect(3, 4);
  exchange();
  pass(milliseconds(10'100));
  EXPECT_EQ(peer(1, 4).relay, 3u);
  f = write(1);
  exchange();
  EXPECT_FALSE(node(1).is_done(f));
  pass(milliseconds(500));
  EXPECT_TRUE(node(1).is_done(f)) << "it comes later";
}

TEST_F(RelayTest, AChainOfTwo) {
  also = [](ReplicaId id, Config& c) {
    c.site = "";
    for (PeerConfig& p : c.peers) p.site = "", p.through = p.id >= 3 && p.id - 1 != id ? p.id - 1 : 0;
  };
  make_sites(4);
  EXPECT_EQ(peer(1, 3).relay, 2u);
  EXPECT_EQ(peer(1, 4).relay, 3u);
  std::size_t to_3 = bodies(1, 3), to_4 = bodies(1, 4), by_3 = bodies(3, 4);
  for (int i = 0; i < 5; ++i) {
    auto f = write(1);
    exchange();
    EXPECT_TRUE(node(1).is_done(f));
  }
  EXPECT_EQ(bodies(1, 3), to_3);
  EXPECT_EQ(bodies(1, 4), to_4);
  EXPECT_EQ(bodies(3, 4), by_3 + 5);
  expect_equal();
}

// ---- messages that do not fit

TEST_F(RelayTest, APrimaryKeepsToTheOrder) {
  auto refused = [&](auto message) {
    make_sites(4);
    message.epoch = said<TakeFrom>(1).back().epoch;
    node(1).input(4, message);
    return !node(1).closed.empty();
  };
  EXPECT_TRUE(refused(TakeAfter{{}, 1, {}})) << "answered already";
  EXPECT_TRUE(refused(TakeAfter{{}, 2, {}})) << "not asked";
  EXPECT_TRUE(refused(RelayLost{{}, 99, "no"}));
  EXPECT_TRUE(refused(RelayLost{{}, 0, "no"}));
  EXPECT_FALSE(refused(RelayLost{{}, 1, "no"}));
  EXPECT_FALSE(refused(Subscribe{{}, 1, {}})) << "meant for the secondary that it was";
  EXPECT_FALSE(refused(Subscribed{{}, 1}));
  EXPECT_FALSE(refused(Taken{{}, 1, {}, {}}));
  EXPECT_FALSE(refused(SubscriptionEnded{{}, 1, ""}));
}

// The answer names a record that the peer has acknowledged, or one that was never sent.
TEST_F(RelayTest, AnAnswerTakesNothingBack) {
  for (bool future : {false, true}) {
    make_sites(4);
    LogMark early = said<Begin>(1).back().from;
    lose<TakeAfter>(1);
    node(1).input(4, RelayLost{said<TakeFrom>(1).back().epoch, said<TakeFrom>(1).back().seq, "it is slow"});
    exchange();
    lost = nullptr;
    TakeFrom asked = said<TakeFrom>(1).back();
    EXPECT_EQ(asked.relay, 0u);
    LogMark mark = future ? LogMark{status(node(1)).last + 9, {}} : early;
    node(1).input(4, TakeAfter{asked.epoch, asked.seq, mark});
    ASSERT_EQ(node(1).closed.size(), 1u);
    EXPECT_NE(node(1).closed[0].reason.find("was not sent"), std::string::npos);
  }
}

TEST_F(RelayTest, ANeighbourKeepsToTheOrder) {
  auto refused = [&](ReplicaId to, auto change) {
    make_sites(4);
    TakeFrom asked = said<TakeFrom>(1).back();
    node(to).input(1, change(asked));
    return !node(to).closed.empty();
  };
  EXPECT_TRUE(refused(4, [](TakeFrom m) { return ++m.epoch.counter, m; })) << "of another epoch";
  EXPECT_TRUE(refused(3, [](TakeFrom m) { return RecordMarks{m.epoch, m.seq, {LogMark{}}}; })) << "not asked";
  EXPECT_TRUE(refused(4, [](TakeFrom m) { return RecordMarks{m.epoch, m.seq + 1, {LogMark{}}}; }));
  EXPECT_TRUE(refused(4, [](TakeFrom m) { return RecordMessage{m.epoch, {}, {}}; }))
      << "in place of its mark";
  EXPECT_FALSE(refused(4, [](TakeFrom m) { return RecordMarks{m.epoch, m.seq, {LogMark{}}}; }));
  EXPECT_FALSE(refused(4, [](TakeFrom m) { return Taken{m.epoch, m.seq, {}, {}}; }));
  make_sites(4);
  TakeFrom asked = said<TakeFrom>(1).back();
  for (int i = 0; i < 9; ++i)
    node(4).input(1, RecordMarks{asked.epoch, asked.seq, std::vector<LogMark>(record_marks_max)});
  EXPECT_FALSE(node(4).closed.empty()) << "more marks than any primary sends";
}

TEST_F(RelayTest, AStrangerIsNoRelay) {
  make_sites(4);
  TakeFrom asked = said<TakeFrom>(1).back();
  for (ReplicaId relay : {ReplicaId{9}, ReplicaId{1}, ReplicaId{4}}) {
    node(4).input(1, TakeFrom{asked.epoch, ++asked.seq, relay});
    EXPECT_EQ(said<RelayLost>(4).back().seq, asked.seq) << relay;
  }
  Lsn last = status(node(4)).last;
  node(4).input(2, RecordMessage{asked.epoch, {}, {}});  // by a replica that is no relay
  EXPECT_EQ(status(node(4)).last, last);
  EXPECT_TRUE(node(4).closed.empty());
}

TEST_F(RelayTest, AnOldReleaseGetsNoNewMessage) {
  make_sites(4);
  for (ReplicaId id : {1, 3}) {
    disconnect(std::min<ReplicaId>(id, 4), 4);
    exchange();
  }
  std::size_t asked = said<TakeFrom>(1).size();
  for (ReplicaId id : {1, 3}) {
    up[{id, 4}] = true;
    node(id).step(PeerUp{.peer = 4, .knows_relays = false});
    node(4).step(PeerUp{id});
  }
  exchange();
  auto f = write(1);
  exchange();
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_EQ(said<TakeFrom>(1).size(), asked);
  EXPECT_EQ(peer(1, 4).relay, 0u);
}

// ---- bounds

struct CountedMemory final : LinkMemory {
  std::map<ReplicaId, std::uint64_t> held;
  void holds(ReplicaId peer, std::uint64_t bytes) override { held[peer] = bytes; }
  bool takes(ReplicaId peer, std::uint64_t more, For) override {
    held[peer] += more;
    return true;
  }
};

TEST_F(RelayTest, ARelayGivesMemoryBack) {
  auto memory = std::make_shared<CountedMemory>();
  also = [&](ReplicaId id, Config& c) {
    if (id == 3) c.link_memory = memory;
  };
  make_sites(4);
  exchange();
  EXPECT_EQ(memory->held[4], 0u);
  lose<Taken>(3);
  write(50);
  exchange();
  EXPECT_GT(memory->held[4], 50u * block_size);
  lost = nullptr;
  write(1);
  exchange();
  EXPECT_EQ(memory->held[4], 0u);
  lose<Taken>(3);
  write(50);
  exchange();
  disconnect(3, 4);
  EXPECT_EQ(memory->held[4], 0u);
}

// A relay sends no more than a window that its neighbour has not taken.
TEST_F(RelayTest, TheRelayKeepsToTheWindow) {
  also = [](ReplicaId, Config& c) { c.send_window_bytes = 1u << 20; };
  make_sites(4);
  lost = [](ReplicaId to, const PeerMessage& m) { return to == 3 && std::holds_alternative<Taken>(m); };
  std::size_t before = bodies(3, 4);
  for (int i = 0; i < 6; ++i) write(100), exchange();
  EXPECT_LE(bodies(3, 4) - before, 4u);
  lost = nullptr;
  pass(milliseconds(5100));
  expect_equal();
}

// The primary has sent everything to a relay that has a window's worth of it. More is not expected of its
// neighbour.
TEST_F(RelayTest, MarksGoNoFurtherThanTheRelaysRecords) {
  also = [](ReplicaId, Config& c) { c.send_window_bytes = 1u << 20; };
  make_sites(4);
  lose<Ack>(1);
  for (int i = 0; i < 6; ++i) write(100), exchange();
  EXPECT_LT(peer(1, 3).sent, status(node(1)).last);
  EXPECT_LE(peer(1, 4).sent, peer(1, 3).sent);
  lost = nullptr;
  node(1).pass_time(milliseconds(10));
  for (ReplicaId id : {2, 3, 4}) disconnect(1, id), connect(1, id);
  expect_equal();
}

// Records that match their marks wait for room in the journal here. The relay sends more in spite of that.
TEST_F(RelayTest, ARelayCannotFillTheMemory) {
  also = [](ReplicaId, Config& c) { c.send_window_bytes = 1u << 20; };
  make_sites(4);
  TakeFrom asked = said<TakeFrom>(1).back();
  lose<Taken>(3);
  for (int i = 0; i < 3; ++i) write(100), exchange();
  RecordMessage record = said<RecordMessage>(3).back();
  for (int i = 0; i < 40 && said<RelayLost>(4).empty(); ++i) node(4).input(3, record);
  ASSERT_FALSE(said<RelayLost>(4).empty());
  EXPECT_EQ(said<RelayLost>(4).back().seq, asked.seq);
}

TEST_F(RelayTest, ARepeatedQuestionStartsNoSecondRead) {
  also = [](ReplicaId id, Config& c) {
    for (PeerConfig& p : c.peers)
      if (id == 4 || p.id == 4) p.protocol = Protocol::A;
  };
  make_sites(4);
  LogMark early = said<Subscribe>(4).back().after;
  Epoch epoch = said<TakeFrom>(1).back().epoch;
  for (int i = 0; i < 3; ++i) write(1), exchange();
  node(3).held = [](Disk kind) { return kind == Disk::journal_read; };
  for (std::uint64_t seq = 50; seq < 60; ++seq) node(3).input(4, Subscribe{epoch, seq, early});
  EXPECT_EQ(node(3).pending(Disk::journal_read), 1u);
  std::size_t begun = said<Subscribed>(3).size();
  node(3).input(4, Subscribe{epoch, 55, early});
  EXPECT_EQ(said<Subscribed>(3).size(), begun) << "older than the last";
  node(3).held = nullptr;
  while (node(3).complete_one()) {
  }
  EXPECT_EQ(said<Subscribed>(3).back().seq, 59u);
  EXPECT_GE(bodies(3, 4), 3u);
}

// Under A a flush waits until a record is on its way. While the peer has not answered, nothing is.
TEST_F(RelayTest, UnderAFlushWaitsForTheAnswer) {
  also = [](ReplicaId id, Config& c) {
    for (PeerConfig& p : c.peers)
      if (id >= 3 || p.id >= 3) p.protocol = Protocol::A;
  };
  make_sites(4);
  ASSERT_EQ(peer(1, 4).relay, 3u);
  lose<TakeAfter>(1);
  node(1).input(4, RelayLost{said<TakeFrom>(1).back().epoch, said<TakeFrom>(1).back().seq, "it is slow"});
  auto f = write(1);
  exchange();
  EXPECT_FALSE(node(1).is_done(f));
  TakeFrom asked = said<TakeFrom>(1).back();
  node(1).input(4, said<TakeAfter>(4).back());
  EXPECT_EQ(said<TakeAfter>(4).back().seq, asked.seq);
  exchange();
  EXPECT_TRUE(node(1).is_done(f));
}

TEST_F(RelayTest, NobodyWaitsForABufferedRelay) {
  also = [](ReplicaId id, Config& c) {
    for (PeerConfig& p : c.peers)
      if (id == 3 || p.id == 3) p.protocol = Protocol::A, p.buffer = BufferConfig{64u << 20, {}};
  };
  make_sites(4);
  EXPECT_EQ(peer(1, 4).relay, 0u);
  EXPECT_EQ(peer(1, 3).relay, 4u) << "the other way round";
}

TEST_F(RelayTest, AReplicaFarAheadGetsItsRecordsDirectly) {
  also = [](ReplicaId id, Config& c) {
    c.send_window_bytes = 1u << 20;
    c.site = "";
    for (PeerConfig& p : c.peers) {
      p.site = "", p.through = p.id == 4 && id != 3 ? 3 : 0;
      if (id >= 3 || p.id >= 3) p.protocol = Protocol::A, p.buffer = BufferConfig{64u << 20, {}};
    }
  };
  make_sites(4);
  ASSERT_EQ(peer(1, 4).relay, 3u);
  disconnect(3, 4);
  exchange();
  node(3).held = [](Disk kind) { return kind == Disk::journal_write; };
  lose<RecordMessage>(3);
  for (int i = 0; i < 8; ++i) write(100), exchange();
  EXPECT_EQ(peer(1, 4).durable, status(node(1)).last);
  connect(3, 4);
  pass(milliseconds(5100));
  EXPECT_EQ(peer(1, 4).relay, 0u) << "it would wait for its relay";
}

TEST_F(RelayTest, AHungNeighbourIsClosedInTime) {
  make_sites(4);
  lose<TakeFrom>(4);
  node(1).input(4, RelayLost{said<TakeFrom>(1).back().epoch, said<TakeFrom>(1).back().seq, "it is slow"});
  write(1);
  exchange();
  node(1).pass_time(seconds(19));
  exchange();
  EXPECT_TRUE(node(1).closed.empty());
  node(1).pass_time(seconds(2));
  ASSERT_EQ(node(1).closed.size(), 1u);
  EXPECT_EQ(node(1).closed[0].peer, 4u);
}

// Over a buffered link any progress is enough, and an unanswered question is none.
TEST_F(RelayTest, AHungFarNeighbourIsClosedToo) {
  also = [](ReplicaId id, Config& c) {
    for (PeerConfig& p : c.peers)
      if (id >= 3 || p.id >= 3) p.protocol = Protocol::A, p.buffer = BufferConfig{64u << 20, {}};
  };
  make_sites(4);
  lose<TakeFrom>(4);
  node(1).input(4, RelayLost{said<TakeFrom>(1).back().epoch, said<TakeFrom>(1).back().seq, "it is slow"});
  exchange();
  node(1).pass_time(seconds(19));
  EXPECT_TRUE(node(1).closed.empty());
  node(1).pass_time(seconds(2));
  ASSERT_EQ(node(1).closed.size(), 1u);
  EXPECT_EQ(node(1).closed[0].peer, 4u);
}

TEST_F(RelayTest, QuestionsDifferAcrossConnections) {
  make_sites(4);
  disconnect(1, 4);
  connect(1, 4);
  exchange();
  auto asked = said<TakeFrom>(1);
  ASSERT_GE(asked.size(), 2u);
  for (std::size_t i = 1; i < asked.size(); ++i) EXPECT_GT(asked[i].seq, asked[i - 1].seq);
}

// A replica that is being filled gets blocks and records in one order, so it has no relay and is none.
TEST_F(RelayTest, AResyncComesDirectly) {
  make_sites(4);
  write(300);
  exchange();
  for (ReplicaId id : {1, 2, 3}) disconnect(id, 4);
  nodes[3] = std::make_unique<Shell>(  // with a new disk
      ShellOptions{.replica = 4, .config = node(4).config(), .volume_blocks = 4096, .seed = 44});
  delivered[3] = 0;
  for (int i = 0; i < 3; ++i) write(300), exchange(), checkpoint(1);
  node(4).held = [](Disk kind) { return kind == Disk::home_sync; };
  for (ReplicaId id : {1, 2, 3}) connect(id, 4);
  exchange();
  EXPECT_TRUE(status(node(4)).inconsistent);
  EXPECT_EQ(peer(1, 4).relay, 0u);
  EXPECT_EQ(peer(1, 3).relay, 0u);
  node(4).held = nullptr;
  exchange();
  EXPECT_EQ(peer(1, 4).relay, 3u) << "after the resync";
  expect_equal();
}

// A promoted relay ends what it did as a secondary.
TEST_F(RelayTest, ARelayThatIsPromotedServesNobody) {
  make_sites(4);
  node(1).step(Demote{5});
  exchange();
  ASSERT_TRUE(promote(3)->ok);
  EXPECT_EQ(peer(3, 4).relay, 0u);
  EXPECT_EQ(peer(3, 2).relay, 1u) << "the sites have changed their roles";
  auto f = node(3).submit(ClientOp::flush);
  exchange();
  EXPECT_TRUE(node(3).is_done(f));
  for (ReplicaId id = 1; id <= 4; ++id) EXPECT_TRUE(node(id).closed.empty()) << id;
}

}  // namespace
}  // namespace twinloft::repl::core
