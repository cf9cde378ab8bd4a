// Two cores, with the test as the network: what each refuses, and what each protocol waits for.
#include <gtest/gtest.h>

#include <cerrno>

#include "shell.h"

namespace twinloft::repl::core {
namespace {

using Bytes = std::vector<std::byte>;

struct PeersTest : testing::Test {
  std::unique_ptr<Shell> primary, secondary;
  Bytes in = filled(block_size, 1);
  std::size_t to_secondary = 0, to_primary = 0;  // number of messages delivered so far
  std::function<void(PeerMessage&)> tamper;      // applied to messages for the secondary

  void SetUp() override { make(Protocol::C); }
  void make(Protocol protocol) {
    primary = std::make_unique<Shell>(
        ShellOptions{.replica = 1, .role = Role::primary, .config = with_peer(2, protocol)});
    secondary = std::make_unique<Shell>(
        ShellOptions{.replica = 2, .config = with_peer(1, protocol), .seed = 2});
    to_secondary = to_primary = 0;
  }

  // As PeerNet reports a connection: to both sides at once, without messages of an earlier connection.
  void connect() {
    to_secondary = primary->sent.size();
    to_primary = secondary->sent.size();
    primary->step(PeerUp{2});
    secondary->step(PeerUp{1});
    deliver_to_secondary(), deliver_to_primary();  // NodeState
  }
  void disconnect() {
    primary->step(PeerDown{2});
    secondary->step(PeerDown{1});
    to_secondary = primary->sent.size();
    to_primary = secondary->sent.size();
  }
  bool deliver_to_secondary() {
    if (to_secondary == primary->sent.size()) return false;
    PeerMessage m = primary->sent[to_secondary++];
    if (tamper) tamper(m);
    secondary->input(1, std::move(m));
    return true;
  }
  bool deliver_to_primary() {
    if (to_primary == secondary->sent.size()) return false;
    primary->input(2, secondary->sent[to_primary++]);
    return true;
  }
  void exchange() {
    bool moved = true;
    while (moved) {
      moved = false;
      while (deliver_to_secondary() || deliver_to_primary()) moved = true;
      std::size_t before = primary->sent.size() + secondary->sent.size();
      primary->settle();
      secondary->settle();
      moved = moved || before != primary->sent.size() + secondary->sent.size();
    }
  }
  std::uint64_t write(std::uint64_t block) {
    return primary->submit(ClientOp::write, block * block_size, block_size, in.data());
  }
  std::uint64_t flush() { return primary->submit(ClientOp::flush); }
  void write_some(std::uint64_t from, std::uint64_t count) {
    for (std::uint64_t b = from; b < from + count; ++b) {
      write(b);
      flush();
      exchange();
    }
  }
  // Keeps all records: without superblock writes, no tail moves.
  void keep_logs() {
    for (Shell* s : {primary.get(), secondary.get()})
      s->held = [](Disk kind) { return kind == Disk::home_sync; };
  }
  template <class M>
  M* last_sent(Shell& shell) {
    for (auto it = shell.sent.rbegin(); it != shell.sent.rend(); ++it)
      if (auto* m = std::get_if<M>(&*it)) return m;
    return nullptr;
  }
  testing::AssertionResult refused(Shell& shell, std::string_view why) {
    auto status = shell.core->status();
    if (shell.closed.empty()) return testing::AssertionFailure() << "the connection is kept";
    if (status.peers.at(0).connection != ConnectionState::StandAlone)
      return testing::AssertionFailure() << "not StandAlone";
    if (shell.closed.back().reason.find(why) == std::string::npos)
      return testing::AssertionFailure()
             << "\"" << shell.closed.back().reason << "\" does not say \"" << why << "\"";
    auto* told = last_sent<Refuse>(shell);
    if (!told || told->reason != shell.closed.back().reason)
      return testing::AssertionFailure() << "the peer gets no message";
    return testing::AssertionSuccess();
  }
  ConnectionState connection(Shell& shell) { return shell.core->status().peers.at(0).connection; }
  // The next undelivered record of the primary.
  RecordMessage* next_record() {
    for (std::size_t i = to_secondary; i < primary->sent.size(); ++i)
      if (auto* m = std::get_if<RecordMessage>(&primary->sent[i])) return m;
    return nullptr;
  }
};

TEST_F(PeersTest, ConnectReplicateSettle) {
  connect();
  exchange();
  EXPECT_EQ(connection(*primary), ConnectionState::Connected);
  EXPECT_EQ(connection(*secondary), ConnectionState::Connected);
  write_some(0, 20);
  primary->submit(ClientOp::trim, 4 * block_size, 4 * block_size);
  flush();
  exchange();
  primary->step(CheckpointNow{});
  secondary->step(CheckpointNow{});
  exchange();
  EXPECT_TRUE(primary->core->settled());
  EXPECT_TRUE(secondary->core->settled());
  EXPECT_EQ(primary->data, secondary->data);
  EXPECT_EQ(primary->data[0], std::byte{1});
  EXPECT_EQ(primary->data[5 * block_size], std::byte{0});
  EXPECT_EQ(secondary->arena.used(), 0u);
}

// ---- what an acknowledgement means

TEST_F(PeersTest, WritesWaitForThePeerAtTheStart) {
  auto w = write(0);
  auto f = flush();
  primary->settle();
  EXPECT_FALSE(primary->is_done(w));
  EXPECT_FALSE(primary->is_done(f));
  EXPECT_TRUE(primary->core->status().suspended);
  connect();
  exchange();
  EXPECT_EQ(primary->done.at(w), 0);
  EXPECT_EQ(primary->done.at(f), 0);
  EXPECT_FALSE(primary->core->status().suspended);
}

TEST_F(PeersTest, CWaitsUntilThePeerIsDurable) {
  connect();
  exchange();
  write(0);
  auto f = flush();
  primary->settle();
  secondary->held = [](Disk kind) { return kind == Disk::journal_write; };
  exchange();
  ASSERT_EQ(secondary->pending(Disk::journal_write), 1u);
  EXPECT_EQ(last_sent<Ack>(*secondary)->received, primary->core->status().last)
      << "it has received the record";
  EXPECT_FALSE(primary->is_done(f));
  EXPECT_LT(primary->core->status().commit, primary->core->status().last);
  secondary->held = nullptr;
  exchange();
  EXPECT_EQ(primary->done.at(f), 0);
  EXPECT_EQ(primary->core->status().commit, primary->core->status().last);
}

TEST_F(PeersTest, CWaitsUntilThePrimaryIsDurableToo) {
  connect();
  exchange();
  primary->held = [](Disk kind) { return kind == Disk::journal_write; };
  write(0);
  auto f = flush();
  exchange();
  EXPECT_EQ(last_sent<Ack>(*secondary)->durable.lsn, primary->core->status().last);
  EXPECT_FALSE(primary->is_done(f));
  primary->held = nullptr;
  exchange();
  EXPECT_EQ(primary->done.at(f), 0);
}

TEST_F(PeersTest, BWaitsUntilThePeerHasIt) {
  make(Protocol::B);
  connect();
  exchange();
  secondary->held = [](Disk kind) { return kind == Disk::journal_write; };
  write(0);
  auto f = flush();
  primary->settle();
  EXPECT_FALSE(primary->is_done(f)) << "durable here, but not there";
  exchange();
  EXPECT_EQ(primary->done.at(f), 0);
}

// Under C nobody waits for a record's arrival in memory, so it is not worth a message of its own.
TEST_F(PeersTest, WhatNobodyWaitsForIsAcknowledgedLater) {
  connect();
  exchange();
  secondary->held = [](Disk kind) { return kind == Disk::journal_write; };
  write(0);
  flush();
  std::size_t before = secondary->sent.size();
  while (deliver_to_secondary()) {
  }
  EXPECT_EQ(secondary->core->status().last, primary->core->status().last);
  EXPECT_EQ(secondary->sent.size(), before);
  secondary->pass_time(std::chrono::milliseconds(2));
  ASSERT_EQ(secondary->sent.size(), before + 1);
  auto* ack = std::get_if<Ack>(&secondary->sent.back());
  ASSERT_TRUE(ack);
  EXPECT_GT(ack->received, ack->durable.lsn);
}

TEST_F(PeersTest, AWaitsUntilItIsOnItsWay) {
  make(Protocol::A);
  connect();
  exchange();
  write(0);
  auto f = flush();
  EXPECT_FALSE(primary->is_done(f)) << "not yet durable here";
  primary->settle();
  EXPECT_EQ(primary->done.at(f), 0);
}

TEST_F(PeersTest, ALostMemberSuspendsAndNothingFails) {
  connect();
  exchange();
  write_some(0, 3);
  disconnect();
  auto w = write(9);
  auto f = flush();
  Bytes out(block_size);
  auto r = primary->submit(ClientOp::read, 0, block_size, out.data());
  primary->settle();
  EXPECT_FALSE(primary->is_done(w));
  EXPECT_EQ(out[0], std::byte{1}) << "reads continue";
  EXPECT_EQ(primary->done.at(r), 0);
  connect();
  exchange();
  EXPECT_EQ(primary->done.at(w), 0);
  EXPECT_EQ(primary->done.at(f), 0);
}

TEST_F(PeersTest, ALostPeerUnderAOrBHoldsNobodyUp) {
  for (Protocol protocol : {Protocol::A, Protocol::B}) {
    make(protocol);
    connect();
    exchange();
    write_some(0, 3);
    disconnect();
    auto w = write(9);
    auto f = flush();
    primary->settle();
    EXPECT_EQ(primary->done.at(w), 0);
    EXPECT_EQ(primary->done.at(f), 0);
    connect();
    exchange();
    EXPECT_EQ(secondary->core->status().last, primary->core->status().last) << "it catches up";
  }
}

TEST_F(PeersTest, APeerThatMissedRecordsGetsThem) {
  connect();
  exchange();
  write_some(0, 3);
  tamper = [](PeerMessage& m) { m = Probe{}; };  // no message arrives any more
  for (std::uint64_t b = 3; b < 9; ++b) write(b), flush();
  primary->settle();
  disconnect();
  tamper = nullptr;
  connect();
  exchange();
  EXPECT_EQ(secondary->core->status().durable, primary->core->status().last);
  EXPECT_EQ(secondary->core->status().commit, primary->core->status().last);
}

TEST_F(PeersTest, TheSecondaryCommitsNothingBeyondTheCommitPoint) {
  connect();
  exchange();
  primary->held = [](Disk kind) { return kind == Disk::journal_write; };
  Lsn before = secondary->core->status().commit;
  write(0);
  flush();
  exchange();
  secondary->step(CheckpointNow{});
  exchange();
  EXPECT_GT(secondary->core->status().durable, before);
  EXPECT_EQ(secondary->core->status().commit, before)
      << "durable here, but not committed, because it is not durable on the primary";
  EXPECT_EQ(secondary->data[0], std::byte{0});
}

// ---- what a secondary refuses

TEST_F(PeersTest, SecondaryServesNoClients) {
  connect();
  exchange();
  for (ClientOp op :
       {ClientOp::read, ClientOp::write, ClientOp::flush, ClientOp::trim, ClientOp::write_zeroes})
    EXPECT_EQ(secondary->done.at(secondary->submit(op, 0, block_size, in.data())), EROFS);
}

TEST_F(PeersTest, SecondaryRefusesARecordThatDoesNotFollow) {
  connect();
  exchange();
  write(0), flush();
  primary->settle();
  ASSERT_NE(next_record(), nullptr);
  RecordMessage first = *next_record();
  exchange();
  secondary->input(1, first);  // the same message again
  EXPECT_TRUE(refused(*secondary, "does not follow"));
}

TEST_F(PeersTest, SecondaryRefusesARecordAfterAGap) {
  connect();
  exchange();
  write(0), flush();
  primary->settle();
  to_secondary = primary->sent.size();  // these messages are lost
  write(1), flush();
  primary->settle();
  Lsn before = secondary->core->status().last;
  deliver_to_secondary();
  EXPECT_TRUE(refused(*secondary, "does not follow"));
  EXPECT_EQ(secondary->core->status().last, before);
}

TEST_F(PeersTest, SecondaryRefusesARecordOfAnotherHistory) {
  connect();
  exchange();
  write(0), flush();
  primary->settle();
  auto* record = next_record();
  ASSERT_NE(record, nullptr);
  auto body = decode_body_meta(record->meta, Shell::volume(), 1024);
  ASSERT_TRUE(body) << body.error().message;
  body->header.prev_hash.bytes[0] ^= std::byte{1};
  record->meta.clear();
  encode_body_meta(*body, record->meta);
  exchange();
  EXPECT_TRUE(refused(*secondary, "does not follow"));
}

TEST_F(PeersTest, SecondaryRefusesDamagedRecords) {
  struct Case {
    const char* why;
    std::function<void(RecordMessage&)> change;
  };
  for (const Case& c :
       {Case{"hash", [](RecordMessage& m) { m.payload[77] ^= std::byte{1}; }},
        {"payload of the wrong size", [](RecordMessage& m) { m.payload.resize(m.payload.size() - 1); }},
        {"payload of the wrong size", [](RecordMessage& m) { m.payload.clear(); }},
        {"hash", [](RecordMessage& m) { m.meta[50] ^= std::byte{1}; }},
        {"body of", [](RecordMessage& m) { m.meta.resize(20); }},
        {"another epoch", [](RecordMessage& m) { m.epoch.counter++; }},
        {"another epoch", [](RecordMessage& m) { m.epoch.id.bytes[3] ^= std::byte{1}; }}}) {
    make(Protocol::C);
    connect();
    exchange();
    Lsn before = secondary->core->status().last;
    tamper = [&](PeerMessage& m) {
      if (auto* record = std::get_if<RecordMessage>(&m)) c.change(*record);
    };
    write(0);
    auto f = flush();
    exchange();
    tamper = nullptr;
    EXPECT_TRUE(refused(*secondary, c.why));
    EXPECT_EQ(secondary->core->status().last, before);
    EXPECT_FALSE(primary->is_done(f));
  }
}

TEST_F(PeersTest, SecondaryRefusesRecordsAndCommitsBeforeBegin) {
  connect();
  deliver_to_secondary();  // MatchRequest
  Epoch epoch = primary->core->status().epoch;
  secondary->input(1, RecordMessage{epoch, {}, {}});
  EXPECT_TRUE(refused(*secondary, "another epoch"));
  make(Protocol::C);
  connect();
  deliver_to_secondary();
  secondary->input(1, Commit{primary->core->status().epoch, {}});
  EXPECT_TRUE(refused(*secondary, "another epoch"));
}

TEST_F(PeersTest, SecondaryRefusesACommitPointOfAnotherHistory) {
  connect();
  exchange();
  primary->held = [](Disk kind) { return kind == Disk::journal_write; };
  write(0), flush();
  exchange();
  Lsn last = secondary->core->status().last;
  secondary->input(1, Commit{primary->core->status().epoch, {last, hash128(as_bytes("elsewhere"))}});
  EXPECT_TRUE(refused(*secondary, "another history"));
  EXPECT_LT(secondary->core->status().commit, last);
}

TEST_F(PeersTest, SecondaryRefusesACommitPointWithinARecord) {
  connect();
  exchange();
  primary->held = [](Disk kind) { return kind == Disk::journal_write; };
  write(0), write(5), write(9), flush();  // one record of three LSNs
  exchange();
  Lsn last = secondary->core->status().last;
  secondary->input(1,
                   Commit{primary->core->status().epoch, {Lsn{last.v - 1}, hash128(as_bytes("elsewhere"))}});
  EXPECT_TRUE(refused(*secondary, "another history"));
}

TEST_F(PeersTest, SecondaryRefusesBeginBelowItsCommit) {
  keep_logs();
  connect();
  exchange();
  write_some(0, 3);
  ASSERT_GT(secondary->core->status().commit.v, 2u);
  disconnect();
  connect();
  deliver_to_secondary();
  LogMark start{Lsn{0}, genesis_hash(Shell::volume(), 1024)};
  secondary->input(1, Begin{primary->core->status().epoch, start});
  EXPECT_TRUE(refused(*secondary, "split brain"));
}

TEST_F(PeersTest, SecondaryRefusesBeginItCannotPlace) {
  connect();
  deliver_to_secondary();
  secondary->input(1, Begin{primary->core->status().epoch, {Lsn{7}, hash128(as_bytes("elsewhere"))}});
  EXPECT_TRUE(refused(*secondary, "not in the log of replica"));
  make(Protocol::C);
  connect();
  deliver_to_secondary();
  LogMark start{Lsn{0}, genesis_hash(Shell::volume(), 1024)};
  secondary->input(1, Begin{Epoch{77, {}}, start});
  EXPECT_TRUE(refused(*secondary, "records offered at the wrong time"));
}

TEST_F(PeersTest, SecondaryRefusesAnEpochThatIsOver) {
  connect();
  exchange();
  disconnect();
  secondary->step(PeerUp{1});
  Epoch old = primary->core->status().epoch;
  old.counter--;
  secondary->input(1, MatchRequest{old});
  if (secondary->closed.empty()) {
    auto* state = last_sent<MatchState>(*secondary);
    ASSERT_NE(state, nullptr);
    secondary->input(1, Begin{old, state->last});
  }
  EXPECT_TRUE(refused(*secondary, "already has epoch"));
}

TEST_F(PeersTest, SecondaryTakesOnePrimaryAtATime) {
  Config config = with_peer(1);
  config.peers.push_back({3, Protocol::C});
  Shell node({.replica = 2, .config = config});
  node.step(PeerUp{1});
  node.step(PeerUp{3});
  SeededRandom random(7);
  node.input(1, MatchRequest{{5, Uuid::generate(random)}});
  EXPECT_TRUE(node.closed.empty());
  node.input(3, MatchRequest{{4, Uuid::generate(random)}});
  ASSERT_EQ(node.closed.size(), 1u);
  EXPECT_EQ(node.closed[0].peer, 3u);
  node.step(PeerDown{3});
  node.step(PeerUp{3});
  node.input(3, MatchRequest{{6, Uuid::generate(random)}});
  ASSERT_EQ(node.closed.size(), 2u);
  EXPECT_EQ(node.closed[1].peer, 1u) << "a newer epoch replaces an older one";
  node.step(PeerUp{9});
  ASSERT_EQ(node.closed.size(), 3u);
  EXPECT_EQ(node.closed[2].reason, "not a peer of this volume");
}

TEST_F(PeersTest, ASecondaryWithAFailedDiskSaysSo) {
  connect();
  exchange();
  secondary->fault = [](Disk kind) { return kind == Disk::journal_write ? EIO : 0; };
  write(0);
  auto f = flush();
  exchange();
  write(1), flush();
  exchange();
  EXPECT_TRUE(secondary->core->status().failed);
  EXPECT_FALSE(primary->is_done(f));
  EXPECT_TRUE(refused(*secondary, "has failed: "));
}

// ---- what a primary refuses

TEST_F(PeersTest, PrimaryRefusesAcksOfWhatItNeverSent) {
  struct Case {
    const char* why;
    std::function<void(Ack&)> change;
  };
  for (const Case& c :
       {Case{"not sent", [](Ack& a) { a.durable = {Lsn{a.durable.lsn.v + 1}, a.durable.hash}; }},
        {"not sent", [](Ack& a) { a.durable.hash.bytes[0] ^= std::byte{1}; }},
        {"not sent", [](Ack& a) { a.received = Lsn{0}; }},
        {"another epoch", [](Ack& a) { a.epoch.counter++; }},
        {"another epoch", [](Ack& a) { a.epoch.id.bytes[0] ^= std::byte{1}; }}}) {
    make(Protocol::C);
    keep_logs();
    connect();
    exchange();
    write_some(0, 2);
    Ack ack = *last_sent<Ack>(*secondary);
    c.change(ack);
    primary->input(2, ack);
    EXPECT_TRUE(refused(*primary, c.why));
    EXPECT_TRUE(primary->core->status().suspended);
  }
}

TEST_F(PeersTest, PrimaryRefusesAnAckOfRecordsStillToBeSent) {
  connect();
  exchange();
  Ack ack = *last_sent<Ack>(*secondary);
  disconnect();
  for (std::uint64_t b = 0; b < 3; ++b) write(b), flush();
  connect();
  while (deliver_to_secondary() || deliver_to_primary())
    if (std::holds_alternative<Begin>(primary->sent.back())) break;
  ack.epoch = primary->core->status().epoch;
  ack.received = Lsn{ack.received.v + 100};
  auto status = primary->core->status();
  primary->input(2, Ack{status.epoch, status.last, {Lsn{status.last.v + 1}, {}}});
  EXPECT_TRUE(refused(*primary, "not sent"));
}

TEST_F(PeersTest, PrimaryRefusesAnswersToNoQuestion) {
  connect();
  exchange();
  primary->input(2, ProbeReply{{Lsn{0}, {}}, true});
  EXPECT_TRUE(refused(*primary, "unrequested answer"));
  make(Protocol::C);
  connect();
  exchange();
  primary->input(2, MatchState{});
  EXPECT_TRUE(refused(*primary, "unrequested answer"));
  make(Protocol::C);
  connect();
  primary->input(2, Ack{primary->core->status().epoch, Lsn{0}, {}});
  EXPECT_TRUE(refused(*primary, "another epoch")) << "an ack before Begin";
}

TEST_F(PeersTest, PrimaryThatLostAcknowledgedWritesDoesNotGoOn) {
  connect();
  exchange();
  write_some(0, 3);
  // The same replica with a new, empty disk.
  primary = std::make_unique<Shell>(
      ShellOptions{.replica = 1, .role = Role::primary, .config = with_peer(2), .seed = 9});
  to_secondary = 0;
  secondary->step(PeerDown{1});
  connect();
  exchange();
  EXPECT_NE(connection(*primary), ConnectionState::Connected);
  EXPECT_NE(connection(*secondary), ConnectionState::Connected);
  EXPECT_EQ(secondary->core->status().commit, secondary->core->status().last) << "no record is cut";
  ASSERT_FALSE(primary->closed.empty() && secondary->closed.empty());
}

// Each needs the other for every acknowledgement, so neither has acknowledged a write. The one with the lower
// id stays primary.
TEST_F(PeersTest, OfTwoPrimariesThatNeedEachOtherOneStepsDown) {
  secondary = std::make_unique<Shell>(
      ShellOptions{.replica = 2, .role = Role::primary, .config = with_peer(1), .seed = 2});
  auto w = secondary->submit(ClientOp::write, 0, block_size, in.data());
  connect();
  exchange();
  EXPECT_EQ(primary->core->status().role, Role::primary);
  EXPECT_EQ(secondary->core->status().role, Role::secondary);
  EXPECT_EQ(secondary->done.at(w), EIO) << "its device is removed";
  ASSERT_EQ(secondary->role_changes.size(), 2u);
  EXPECT_TRUE(secondary->role_changes[1].lost);
  disconnect();
  connect();
  exchange();
  write_some(3, 2);
  EXPECT_EQ(connection(*primary), ConnectionState::Connected);
}

TEST_F(PeersTest, TwoSecondariesKnowEachOtherAndWait) {
  primary = std::make_unique<Shell>(ShellOptions{.replica = 1, .config = with_peer(2)});
  connect();
  exchange();
  EXPECT_EQ(primary->sent.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<NodeState>(primary->sent[0]));
  EXPECT_EQ(secondary->sent.size(), 1u);
}

TEST_F(PeersTest, ARefusalIsShownOnTheOtherSideAndTriedAgain) {
  connect();
  exchange();
  primary->input(2, Refuse{"the disk is on fire"});
  EXPECT_NE(primary->core->status().peers[0].why.find("the disk is on fire"), std::string::npos);
  EXPECT_EQ(primary->closed.size(), 1u);
  EXPECT_EQ(connection(*primary), ConnectionState::StandAlone);
  disconnect();
  connect();
  exchange();
  EXPECT_EQ(connection(*primary), ConnectionState::Connected);
  EXPECT_EQ(primary->core->status().peers[0].why, "");
}

// ---- divergent tails

TEST_F(PeersTest, WhatOnlyTheSecondaryHasIsCutOffBeforeNewRecordsCome) {
  connect();
  exchange();
  write_some(0, 2);
  // The primary's disk is slow: these records are durable only on the secondary.
  primary->held = [](Disk kind) { return kind == Disk::journal_write; };
  write(7), flush();
  write(8), flush();
  exchange();
  Lsn only_there = secondary->core->status().last;
  ASSERT_GT(only_there, primary->core->status().durable);

  // A power cut: the primary comes back without the writes in flight.
  primary->held = nullptr;
  secondary->step(PeerDown{1});
  primary->restart();
  ASSERT_LT(primary->core->status().durable, only_there);

  secondary->held = [](Disk kind) { return kind == Disk::superblock; };
  connect();
  exchange();
  EXPECT_EQ(secondary->pending(Disk::superblock), 1u);
  EXPECT_EQ(secondary->pending(Disk::journal_write), 0u) << "no record before the cut is durable";
  EXPECT_NE(connection(*secondary), ConnectionState::Connected);
  secondary->held = nullptr;
  write(20), flush();
  exchange();
  EXPECT_EQ(connection(*secondary), ConnectionState::Connected);
  EXPECT_EQ(secondary->core->status().last, primary->core->status().last);
  primary->step(CheckpointNow{}), secondary->step(CheckpointNow{});
  exchange();
  EXPECT_EQ(primary->data, secondary->data);
  EXPECT_EQ(secondary->data[7 * block_size], std::byte{0}) << "the cut record does not come back";
}

// While the cut waits for the disk, no record is accepted. A primary that ignores the window must not fill
// the memory.
TEST_F(PeersTest, RecordsThatNobodyHasRoomForAreBounded) {
  connect();
  exchange();
  write_some(0, 2);
  primary->held = [](Disk kind) { return kind == Disk::journal_write; };
  write(7), flush();
  exchange();
  primary->held = nullptr;
  secondary->step(PeerDown{1});
  primary->restart();
  secondary->held = [](Disk kind) { return kind == Disk::superblock; };
  connect();
  exchange();
  ASSERT_EQ(secondary->pending(Disk::superblock), 1u);
  RecordMessage m{last_sent<Begin>(*primary)->epoch, Bytes(100), Bytes(1u << 20)};
  int taken = 0;
  for (; taken < 64 && secondary->closed.empty(); ++taken) secondary->input(1, m);
  EXPECT_TRUE(refused(*secondary, "more than the send window allows"));
  EXPECT_GT(taken, 16) << "four windows";
  EXPECT_LT(taken, 24);
}

}  // namespace
}  // namespace twinloft::repl::core
