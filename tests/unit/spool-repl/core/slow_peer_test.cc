// Connected peers that are too slow: every wait for a peer is limited, and a peer does not fill the journal.
#include "roles.h"

namespace twinloft::repl::core {

using std::chrono::seconds;

struct SlowPeerTest : RolesTest {
  // Replica 1 is primary. The link to replica 2 has this protocol.
  void make_pair(Protocol protocol, OnPeerLoss loss = OnPeerLoss::go_on, Duration slow_peer = seconds(20),
                 unsigned min_in_sync = 1, std::uint64_t volume_blocks = 1024) {
    nodes.clear();
    for (ReplicaId id : {1, 2}) {
      Config c = config_of(id, 2);
      c.peers[0].protocol = id == 1 ? protocol : Protocol::C;
      c.on_peer_loss = loss;
      c.slow_peer = slow_peer;
      c.min_in_sync = min_in_sync;
      c.send_window_bytes = 1u << 20;
      c.sync_window_bytes = 64u << 20;  // more than the arena holds
      nodes.push_back(std::make_unique<Shell>(
          ShellOptions{.replica = id, .config = c, .volume_blocks = volume_blocks, .seed = id}));
    }
    delivered.assign(2, 0);
    connect_all();
    exchange();
    ASSERT_TRUE(promote(1)->ok);
  }
  void hold_journal(ReplicaId id) {
    node(id).held = [](Disk kind) { return kind == Disk::journal_write; };
  }
  // Lets that many journal writes of the replica end, and no more.
  void let_through(ReplicaId id, int writes) {
    node(id).held = [&writes](Disk kind) { return kind == Disk::journal_write && writes-- <= 0; };
    exchange();
    hold_journal(id);
  }
  bool says(ReplicaId id, std::string_view text) {
    return std::any_of(node(id).notices.begin(), node(id).notices.end(),
                       [&](const std::string& n) { return n.find(text) != n.npos; });
  }
};

TEST_F(SlowPeerTest, AMemberThatTakesNothingIsClosed) {
  make_pair(Protocol::C);
  hold_journal(2);
  auto f = write_flush(1, 0);
  exchange();
  node(1).pass_time(seconds(19));
  EXPECT_FALSE(node(1).is_done(f));
  EXPECT_TRUE(node(1).closed.empty());
  node(1).pass_time(seconds(2));
  ASSERT_EQ(node(1).closed.size(), 1u);
  disconnect(1, 2);
  exchange();
  EXPECT_EQ(node(1).done.at(f), 0);
}

// One record every five seconds is progress, but the later records wait longer and longer.
TEST_F(SlowPeerTest, AMemberThatCreepsIsClosed) {
  make_pair(Protocol::C);
  hold_journal(2);
  for (std::uint64_t block = 0; block < 12; ++block) write_flush(1, block), exchange();
  Lsn before = status(node(2)).durable;
  for (int i = 0; i < 9; ++i) {
    let_through(2, 1);
    node(1).pass_time(seconds(5));
    exchange();
  }
  EXPECT_GT(status(node(2)).durable, before);
  EXPECT_TRUE(says(1, "was not durable there within 20 s"));
  EXPECT_EQ(node(1).closed.size(), 1u);
}

// It always has records in flight, and each becomes durable in time.
TEST_F(SlowPeerTest, AMemberThatKeepsUpWithABacklogIsNotClosed) {
  make_pair(Protocol::C);
  hold_journal(2);
  for (std::uint64_t block = 0; block < 60; ++block) {
    write_flush(1, block);
    exchange();
    if (block < 10) continue;
    node(1).pass_time(seconds(1));
    let_through(2, 1);
    ASSERT_LT(status(node(2)).durable, status(node(1)).last);
  }
  EXPECT_TRUE(node(1).closed.empty());
}

// If the loss of a member suspends writes, closing its connection would not help.
TEST_F(SlowPeerTest, AMemberThatMayNotBeLeftOutIsWaitedFor) {
  make_pair(Protocol::C, OnPeerLoss::suspend);
  hold_journal(2);
  write_flush(1, 0);
  exchange();
  node(1).pass_time(seconds(100));
  EXPECT_TRUE(node(1).closed.empty());
  auto next = node(1).core->next_tick();
  EXPECT_TRUE(!next || *next > node(1).now()) << "no repeated action";
}

// Nor if fewer than min_in_sync members would be left.
TEST_F(SlowPeerTest, NorOneWithoutWhomTooFewAreLeft) {
  make_pair(Protocol::C, OnPeerLoss::go_on, seconds(20), 2);
  hold_journal(2);
  write_flush(1, 0);
  exchange();
  node(1).pass_time(seconds(100));
  EXPECT_TRUE(node(1).closed.empty());
}

// The primary does not know yet which records the follower has. This does not count as being behind.
TEST_F(SlowPeerTest, AFollowerThatHasEverythingIsNotClosedAtTheStart) {
  make_pair(Protocol::B, OnPeerLoss::suspend, std::chrono::hours(1));
  // So that the journal is not emptied.
  node(1).held = [](Disk kind) { return kind == Disk::home_write || kind == Disk::bitmap; };
  for (int round = 0; round < 4; ++round) fill(1, 0, 300, 10 + round);
  ASSERT_GT(status(node(1)).journal_used, status(node(1)).journal_size / 2);
  restart(1);
  disconnect(1, 2), connect(1, 2);
  exchange();
  ASSERT_TRUE(promote(1)->ok);
  exchange();
  ASSERT_GT(status(node(1)).journal_used, status(node(1)).journal_size / 2);
  EXPECT_TRUE(node(1).closed.empty()) << node(1).closed.front().reason;
}

// A resync target may be slow, but it must make progress, because it holds back the journal.
TEST_F(SlowPeerTest, ATargetThatStandsStillIsClosed) {
  make_pair(Protocol::C, OnPeerLoss::go_on);
  fill(1, 0, 300, 3);
  checkpoint(1);
  disconnect(1, 2);
  exchange();
  lose_disk(2);
  connect(1, 2);
  exchange([&] { return status(node(2)).inconsistent; });
  exchange([&] { return node(1).core->status().peers[0].synced_blocks > 0; });
  node(2).held = [](Disk) { return true; };
  exchange();
  ASSERT_TRUE(node(1).core->status().peers[0].sync_target);
  node(1).pass_time(seconds(1));
  EXPECT_TRUE(node(1).closed.empty());
  node(1).pass_time(seconds(21));
  EXPECT_EQ(node(1).closed.size(), 1u);
}

// One round of its checkpoint may take longer than any other limit. The target counts as working as long as
// its disk completes writes.
TEST_F(SlowPeerTest, ATargetWhoseDiskIsSlowIsFilled) {
  make_pair(Protocol::C, OnPeerLoss::go_on);
  for (int i = 0; i < 40; ++i) fill(1, i * 20, i * 20 + 1, 3 + i);  // each is written home in its own write
  checkpoint(1);
  disconnect(1, 2);
  exchange();
  lose_disk(2);
  int writes = 0;  // number of writes that may end
  node(2).held = [&writes](Disk kind) { return kind == Disk::home_write && writes-- <= 0; };
  connect(1, 2);
  exchange();
  ASSERT_TRUE(status(node(2)).inconsistent);
  for (int i = 0; i < 400 && status(node(2)).inconsistent; ++i) {
    writes = i % 2;
    exchange();
    for (ReplicaId id : {1, 2}) node(id).pass_time(seconds(6));
    exchange();
  }
  EXPECT_FALSE(status(node(2)).inconsistent);
  EXPECT_TRUE(node(1).closed.empty()) << node(1).closed.front().reason;
  node(2).held = nullptr;
  exchange();
  checkpoint(1), checkpoint(2);
  EXPECT_EQ(node(1).data, node(2).data);
}

// The target reports a completed write in time, even if nothing else happens.
TEST_F(SlowPeerTest, ThatATargetsDiskGoesOnIsToldByItself) {
  make_pair(Protocol::C, OnPeerLoss::go_on);
  for (int i = 0; i < 40; ++i) fill(1, i * 20, i * 20 + 1, 3 + i);
  checkpoint(1);
  disconnect(1, 2);
  exchange();
  lose_disk(2);
  int writes = 0;
  node(2).held = [&writes](Disk kind) { return kind == Disk::home_write && writes-- <= 0; };
  connect(1, 2);
  exchange();
  std::size_t before = node(2).sent.size();
  node(2).pass_time(seconds(1));
  writes = 1;
  exchange();  // the write ends before the next report is due
  std::size_t told = 0;
  while (auto next = node(2).core->next_tick()) {
    if (*next - node(2).now() > seconds(10)) break;
    node(2).pass_time(std::max(Duration(1), *next - node(2).now()));
  }
  for (std::size_t i = before; i < node(2).sent.size(); ++i)
    told += std::holds_alternative<SyncAck>(node(2).sent[i]);
  EXPECT_GE(told, 1u);
}

// Declining records for lack of room is no progress either.
TEST_F(SlowPeerTest, ATargetThatDeclinesForEverIsClosed) {
  make_pair(Protocol::C, OnPeerLoss::go_on, seconds(20), 1, 8192);
  for (std::uint64_t at = 0; at < 8000; at += 400) fill(1, at, at + 400, 3), checkpoint(1);
  disconnect(1, 2);
  exchange();
  lose_disk(2);
  node(2).held = [](Disk kind) { return kind == Disk::home_write; };
  connect(1, 2);
  std::size_t declined = 0;
  for (int i = 0; i < 60 && node(1).closed.empty(); ++i) {
    exchange();
    for (ReplicaId id : {1, 2}) node(id).pass_time(seconds(1));
  }
  for (const PeerMessage& m : node(2).sent)
    if (auto* ack = std::get_if<SyncAck>(&m)) declined += ack->declined;
  EXPECT_GT(declined, 0u);
  EXPECT_EQ(node(1).closed.size(), 1u);
}

TEST_F(SlowPeerTest, AFollowerThatTakesNothingIsClosed) {
  for (Protocol protocol : {Protocol::A, Protocol::B}) {
    make_pair(protocol, OnPeerLoss::suspend);
    lost = [](ReplicaId to, const PeerMessage& m) {
      return to == 2 && std::holds_alternative<RecordMessage>(m);
    };
    auto f = write_flush(1, 0);
    exchange();
    EXPECT_EQ(node(1).is_done(f), protocol == Protocol::A);
    node(1).pass_time(seconds(21));
    ASSERT_EQ(node(1).closed.size(), 1u);
    disconnect(1, 2);
    exchange();
    EXPECT_EQ(node(1).done.at(f), 0);
    lost = nullptr;
  }
}

// Half of the journal is kept for a replica that is behind, connected or not. The bitmap has the rest.
TEST_F(SlowPeerTest, AFollowerDoesNotFillTheJournal) {
  for (Protocol protocol : {Protocol::A, Protocol::B}) {
    make_pair(protocol, OnPeerLoss::suspend, std::chrono::hours(1));
    hold_journal(2);
    for (int round = 0; round < 12; ++round) fill(1, 0, 300, 10 + round);
    EXPECT_TRUE(says(1, "more than half of the journal")) << status(node(1)).journal_used;
    disconnect(1, 2);
    node(1).held = nullptr;
    fill(1, 0, 300, 30);
    checkpoint(1);
    EXPECT_LT(status(node(1)).journal_used, status(node(1)).journal_size / 2);
    node(2).held = nullptr;
    connect(1, 2);
    exchange();
    EXPECT_EQ(status(node(2)).durable, status(node(1)).last);
    checkpoint(1), checkpoint(2);
    EXPECT_EQ(node(1).data, node(2).data);
  }
}

// status names the member that blocks writers. It also names the member that blocks flushes, if the same
// blocks are written repeatedly.
TEST_F(SlowPeerTest, StatusTellsWhomWritersWaitFor) {
  for (std::uint64_t blocks : {1000, 300}) {
    make_pair(Protocol::C, OnPeerLoss::suspend);
    EXPECT_EQ(status(node(1)).slowed_by, 0u);
    hold_journal(2);
    for (std::uint64_t i = 0; i < 6000; ++i) {
      node(1).submit(ClientOp::write, i % blocks * block_size, block_size, in.data());
      if (i % blocks == blocks - 1) node(1).submit(ClientOp::flush), exchange();
    }
    exchange();
    EXPECT_EQ(status(node(1)).slowed_by, 2u);
    EXPECT_GT(status(node(1)).slowed_by_bytes, 4u << 20);
    node(2).held = nullptr;
    exchange();
    EXPECT_EQ(status(node(1)).slowed_by, 0u);
  }
}

}  // namespace twinloft::repl::core
