// Which tails may be cut and which are a split brain. A cut tail is kept in an archive and erased from the
// journal.
#include <gtest/gtest.h>

#include <cerrno>

#include "roles.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::core {
namespace {

struct TailTest : RolesTest {
  // Replica 1 was primary, and has records that no other replica has. Replica 2 is primary now, and not
  // connected.
  void make_tail(std::uint64_t writes) {
    make_promoted(1, 2);
    node(2).held = [](Disk kind) { return kind == Disk::journal_write; };
    for (std::uint64_t b = 0; b < writes; ++b) {
      write_flush(1, b);
      while (node(1).complete_one()) {
      }
    }
    disconnect(1, 2);
    node(2).held = nullptr;
    ASSERT_TRUE(promote(2, true)->ok);
    restart(1);
  }
  LogMark acknowledged_by_1() {
    LogMark mark;
    for (const PeerMessage& m : node(1).sent)
      if (auto* ack = std::get_if<Ack>(&m)) mark = ack->durable;
    return mark;
  }
  // A table of replica 1, alone in later epochs than `newest`, which the table no longer has. In the middle,
  // `forced` was promoted by force; 0: no force.
  EpochTable table_behind(const Epoch& newest, ReplicaId forced) {
    EpochTable table;
    for (std::uint64_t i = 0; i < epoch_table_max; ++i) {
      bool by_force = forced != 0 && i == 8;
      Epoch epoch{newest.counter + 2 + i, Uuid::generate(node(1).random)};
      table.note({epoch, Lsn{1001 + i}, by_force ? forced : ReplicaId{1}, set_of(1),
                  by_force ? epoch_by_force : 0u});
    }
    return table;
  }
  // Replica 2 connects to replica 1 as a newer primary. One epoch follows the last common record.
  void meet_newer(const LogMark& common, ReplicaId writer, ReplicaSet in_sync, std::uint32_t flags,
                  EpochMark after = {}) {
    Epoch newer{status(node(1)).epoch.counter + 5, Uuid::generate(node(1).random)};
    node(1).step(PeerUp{2});
    node(1).input(2, MatchRequest{newer});
    node(1).input(2, Begin{newer, common, {}, {{newer, common.lsn + 1, writer, in_sync, flags, after}}});
    while (node(1).complete_one()) {
    }
  }
};

// Replica 1 continued alone, in an epoch that no other log has. The verdict depends on whether the replica
// that was promoted since knew that epoch.
TEST_F(TailTest, AnEpochThatWasKnownAtThePromotionIsNoSplitBrain) {
  for (bool heir : {false, true}) {
    make_promoted(1, 2, OnPeerLoss::go_on);
    write_flush(1, 0);
    exchange();
    LogMark common;
    for (const PeerMessage& m : node(1).sent)
      if (auto* commit = std::get_if<Commit>(&m)) common = commit->mark;
    disconnect(1, 2);
    exchange();
    ASSERT_EQ(status(node(1)).in_sync, set_of(1));
    Epoch own = status(node(1)).epoch;
    node(1).restart();
    Lsn alone = status(node(1)).last;
    ASSERT_GT(alone, common.lsn);
    meet_newer(common, 2, set_of(2), 0, heir ? mark_of(own) : EpochMark());
    EXPECT_EQ(status(node(1)).peers[0].split_brain, !heir) << status(node(1)).peers[0].why;
    EXPECT_EQ(status(node(1)).last, heir ? common.lsn : alone);
  }
}

// Found by the simulator. The replica writes committed blocks home and moves its tail, while a newer primary
// searches for the last common record. That record is the tail.
TEST_F(TailTest, ATailThatMovesDuringTheSearchIsNoSplitBrain) {
  make_promoted(1, 2);
  for (std::uint64_t b = 0; b < 8; ++b) {
    write_flush(1, b);
    exchange();
  }
  node(2).held = [](Disk kind) { return kind == Disk::journal_write; };
  write_flush(1, 9);
  while (node(1).complete_one()) {
  }
  disconnect(1, 2);
  node(2).held = nullptr;
  ASSERT_TRUE(promote(2, true)->ok);
  restart(1);
  connect(1, 2);
  exchange([&] { return !node(2).sent.empty() && std::holds_alternative<Probe>(node(2).sent.back()); });
  ASSERT_TRUE(std::holds_alternative<Probe>(node(2).sent.back()));
  node(1).step(CheckpointNow{});
  while (node(1).complete_one()) {
  }
  exchange();
  EXPECT_FALSE(status(node(1)).peers[0].split_brain) << status(node(1)).peers[0].why;
  EXPECT_EQ(status(node(2)).in_sync, set_of(1) | set_of(2));
  EXPECT_EQ(std::count(node(2).notices.begin(), node(2).notices.end(), "replica 1 needs a bitmap resync"), 0);
}

// The peer's epoch table begins after every epoch that is known here. The peer is a member, so it once had
// every record, unless a loss was accepted since.
TEST_F(TailTest, WhoHasForgottenUsIsNotTrustedIfSomebodyElseCameByForceSince) {
  for (ReplicaId forced : {0, 1, 3}) {
    make_promoted(1, 3, OnPeerLoss::go_on);
    disconnect(1, 3);
    disconnect(2, 3);
    write_flush(1, 0);
    exchange();
    disconnect(1, 2);
    exchange();
    ASSERT_EQ(status(node(2)).in_sync, set_of(1) | set_of(2));
    EpochTable table = table_behind(status(node(1)).epoch, forced);
    Epoch now = table.back().epoch;
    Lsn last = status(node(2)).last;
    node(2).step(PeerUp{1});
    node(2).input(1, MatchRequest{now});
    node(2).input(1, SyncBegin{now, {Lsn{2000}, {}}, now, true, {}, {}, table});
    while (node(2).complete_one()) {
    }
    bool kept = forced == 3;
    EXPECT_EQ(status(node(2)).peers[0].split_brain, kept) << forced << ": " << status(node(2)).peers[0].why;
    EXPECT_EQ(status(node(2)).last == last, kept);
  }
}

// Found by the simulator: an unacknowledged tail is cut even if the primary's table no longer has its epoch.
TEST_F(TailTest, ATailOfAForgottenEpochIsCutUnlessSomebodyElseCameByForceSince) {
  for (ReplicaId forced : {0, 1, 3}) {
    make_promoted(1, 3, OnPeerLoss::go_on);
    for (ReplicaId id : {1, 2}) disconnect(id, 3);
    write_flush(1, 0);
    exchange();
    lost = [](ReplicaId, const PeerMessage& m) { return std::holds_alternative<Commit>(m); };
    write_flush(1, 1);
    exchange();
    disconnect(1, 2);
    lost = nullptr;
    LogMark common;
    for (const PeerMessage& m : node(2).sent)
      if (auto* ack = std::get_if<Ack>(&m); ack && ack->durable.lsn == status(node(2)).commit)
        common = ack->durable;
    EpochTable table = table_behind(status(node(2)).epoch, forced);
    node(2).step(PeerUp{1});
    node(2).input(1, MatchRequest{table.back().epoch});
    ASSERT_GT(status(node(2)).last, common.lsn);
    ASSERT_GT(common.lsn, Lsn{0});
    node(2).input(1, Begin{table.back().epoch, common, {}, table});
    while (node(2).complete_one()) {
    }
    bool kept = forced == 3;
    EXPECT_EQ(status(node(2)).peers[0].split_brain, kept) << forced << ": " << status(node(2)).peers[0].why;
    EXPECT_EQ(status(node(2)).last == common.lsn, !kept);
    EXPECT_EQ(node(2).archived.empty(), kept);
  }
}

// The same if the table no longer has the forced promotion. A replica whose own history has that epoch was
// filled after it.
TEST_F(TailTest, WhoHasForgottenThatSomebodyCameByForceIsNotTrustedWithOurs) {
  for (ReplicaId forced : {0, 1, 3}) {
    for (bool known : {false, true}) {
      make_promoted(1, 3, OnPeerLoss::go_on);
      disconnect(1, 3);
      disconnect(2, 3);
      write_flush(1, 0);
      exchange();
      disconnect(1, 2);
      exchange();
      EpochTable table;
      Epoch newest = status(node(1)).epoch;
      table.note({{newest.counter + 1, Uuid::generate(node(1).random)},
                  Lsn{1000},
                  forced ? forced : 1,
                  set_of(3),
                  forced ? epoch_by_force : 0u});
      Epoch forgotten = table.back().epoch;
      for (std::uint64_t i = 0; i < epoch_table_max + 40; ++i)
        table.note({{newest.counter + 2 + i, Uuid::generate(node(1).random)}, Lsn{1001 + i}, 1, set_of(1)});
      ASSERT_EQ(table.forgotten_force.epoch == forgotten, forced != 0);
      // the forced promotion is part of the history here
      if (known) table.forgotten_force.epoch = status(node(2)).epoch;
      Epoch now = table.back().epoch;
      Lsn last = status(node(2)).last;
      node(2).step(PeerUp{1});
      node(2).input(1, MatchRequest{now});
      node(2).input(1, SyncBegin{now, {Lsn{2000}, {}}, now, true, {}, {}, table});
      while (node(2).complete_one()) {
      }
      bool kept = forced == 3 && !known;
      EXPECT_EQ(status(node(2)).peers[0].split_brain, kept) << forced << ": " << status(node(2)).peers[0].why;
      EXPECT_EQ(status(node(2)).last == last, kept) << forced;
    }
  }
}

TEST_F(TailTest, WhoHasForgottenALossIsNotTrustedWithOurs) {
  for (bool lossy : {false, true}) {
    make_promoted(1, 2);
    write_flush(1, 0);
    exchange();
    disconnect(1, 2);
    exchange();
    Lsn last = status(node(2)).last;
    EpochTable table;
    Epoch newest = status(node(1)).epoch;
    table.note({{newest.counter + 1, Uuid::generate(node(1).random)},
                Lsn{1000},
                1,
                set_of(1),
                lossy ? epoch_lossy : 0u});
    for (std::uint64_t i = 0; i < epoch_table_max; ++i)
      table.note({{newest.counter + 2 + i, Uuid::generate(node(1).random)}, Lsn{1001 + i}, 1, set_of(1)});
    Epoch now = table.back().epoch;
    node(2).step(PeerUp{1});
    node(2).input(1, MatchRequest{now});
    node(2).input(1, SyncBegin{now, {Lsn{2000}, {}}, now, true, {}, {}, table});
    while (node(2).complete_one()) {
    }
    EXPECT_EQ(status(node(2)).peers[0].split_brain, lossy) << status(node(2)).peers[0].why;
    EXPECT_EQ(status(node(2)).last == last, lossy);
  }
}

// A forced promotion on the side of the tail also breaks the chain: the peer may not have the history before
// the tail.
TEST_F(TailTest, ATailThatBeganByForceIsASplitBrain) {
  make_promoted(2, 2);
  write_flush(2, 0);
  exchange();
  LogMark common = acknowledged_by_1();
  disconnect(1, 2);
  ASSERT_TRUE(promote(1, true)->ok);
  ASSERT_EQ(status(node(1)).in_sync, set_of(1));
  Epoch own = status(node(1)).epoch;
  node(1).restart();
  Lsn last = status(node(1)).last;
  ASSERT_GT(last, common.lsn);
  meet_newer(common, 1, set_of(2), 0, mark_of(own));
  EXPECT_TRUE(status(node(1)).peers[0].split_brain);
  EXPECT_NE(status(node(1)).peers[0].why.find("without replica 2, and"), std::string::npos)
      << status(node(1)).peers[0].why;
  EXPECT_EQ(status(node(1)).last, last);
  EXPECT_TRUE(node(1).archived.empty());
}

// Replica 1 took over two epochs that do not count it. It meets a primary without these epochs. If a complete
// member lacks their records, no write of these epochs was acknowledged. With more epochs than the table
// holds, one of them may have counted replica 1.
TEST_F(TailTest, ATailThatAWitnessDidNotHaveIsNoSplitBrain) {
  struct Case {
    bool counted, by_force;
    ReplicaSet witnesses;
    std::size_t promotions = 0;  // promotions of replica 3 while it is alone
  };
  for (Case c :
       {Case{false, false, set_of(2) | set_of(3)}, Case{false, false, set_of(2) | set_of(3), epoch_table_max},
        Case{false, false, set_of(2) | set_of(3), epoch_table_max / 2},
        Case{true, false, set_of(2) | set_of(3)}, Case{false, true, set_of(2) | set_of(3)},
        Case{false, false, set_of(2)}, Case{false, false, 0}}) {
    make_promoted(3, 3, OnPeerLoss::go_on);
    write_flush(3, 0);
    exchange();
    LogMark before = acknowledged_by_1();
    // So that replica 1 gets no commit.
    node(3).held = [](Disk kind) { return kind == Disk::journal_write; };
    write_flush(3, 1);
    exchange();
    LogMark common = c.counted ? before : acknowledged_by_1();
    ASSERT_LT(before.lsn, acknowledged_by_1().lsn);
    disconnect(1, 3);
    disconnect(1, 2);
    exchange();
    disconnect(2, 3);
    exchange();
    ASSERT_EQ(status(node(3)).in_sync, set_of(3));
    for (std::size_t n = 0; n < c.promotions; ++n) {
      node(3).held = nullptr;
      node(3).step(Demote{77});
      exchange();
      ASSERT_TRUE(promote(3)->ok);
    }
    node(3).held = nullptr;
    exchange();
    // So that it does not become a member.
    node(1).held = [](Disk kind) { return kind == Disk::journal_write; };
    lost = [](ReplicaId to, const PeerMessage& m) { return to == 1 && std::holds_alternative<Commit>(m); };
    connect(1, 3);
    exchange();
    disconnect(1, 3);
    node(1).held = nullptr;
    lost = nullptr;
    exchange();
    node(1).restart();
    Lsn last = status(node(1)).last;
    ASSERT_GT(last, common.lsn);
    std::uint32_t flags = (c.by_force ? epoch_by_force : 0u) | (c.witnesses != 0 ? epoch_witnessed : 0u);
    meet_newer(common, 2, c.witnesses != 0 ? c.witnesses : set_of(2), flags);
    bool split = c.counted || c.by_force || !(c.witnesses & set_of(3)) || c.promotions == epoch_table_max;
    EXPECT_EQ(status(node(1)).peers[0].split_brain, split) << status(node(1)).peers[0].why;
    EXPECT_EQ(status(node(1)).last, split ? last : common.lsn);
    EXPECT_EQ(node(1).archived.empty(), split);
  }
}

// Replica 3 acknowledged a write alone, and replica 1 got it from there. Then replica 3 loses its disk. A
// replica that is promoted next cannot know of the write, so the only copy is kept.
TEST_F(TailTest, TheLastCopyOfWhatALostReplicaAcknowledgedIsKept) {
  make_promoted(3, 3, OnPeerLoss::go_on);
  fill(3, 0, 2, 1);
  disconnect(1, 3);
  disconnect(1, 2);
  exchange();
  disconnect(2, 3);
  exchange();
  ASSERT_EQ(status(node(3)).in_sync, set_of(3));
  auto alone = write_flush(3, 5);
  node(1).held = [](Disk kind) { return kind == Disk::journal_write; };  // so it becomes no member
  connect(1, 3);
  exchange();
  ASSERT_EQ(node(3).done.at(alone), 0);
  disconnect(1, 3);
  node(1).held = nullptr;
  exchange();
  node(1).restart();
  Lsn last = status(node(1)).last;
  ASSERT_LT(status(node(1)).commit, last);
  lose_disk(3);
  connect(2, 3);
  exchange();
  ASSERT_TRUE(promote(2)->ok);
  delivered[0] = node(1).sent.size();
  connect(1, 2);
  exchange();
  EXPECT_TRUE(status(node(1)).peers[0].split_brain) << status(node(1)).peers[0].why;
  EXPECT_EQ(status(node(1)).last, last);
  EXPECT_TRUE(node(1).archived.empty());
}

// Found by the simulator. A peer cut its log for an epoch that its primary lost in a crash. The primary's
// next promotion took the same counter, and the peer was promoted by the set of the lost epoch.
TEST_F(TailTest, NobodyIsCutForAnEpochThatItsPrimaryMayLose) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  write_flush(1, 0);
  exchange();
  node(1).step(Demote{78});
  exchange();
  disconnect(1, 2);
  ASSERT_TRUE(promote(1, true)->ok);
  write_flush(1, 1);
  exchange();
  for (Disk kind : {Disk::journal_write, Disk::superblock}) {
    node(1).step(Demote{78});
    exchange();
    restart(1);
    node(1).held = [kind](Disk of) { return of == kind; };
    node(1).step(Promote{77, true});
    exchange();
    ASSERT_EQ(status(node(1)).role, Role::primary);
    Epoch now = status(node(1)).epoch;
    std::size_t from = node(1).sent.size();
    connect(1, 2);
    exchange();
    for (std::size_t i = from; i < node(1).sent.size(); ++i)
      EXPECT_FALSE(std::holds_alternative<Begin>(node(1).sent[i]) ||
                   std::holds_alternative<SyncBegin>(node(1).sent[i]));
    node(1).held = nullptr;
    exchange();
    EXPECT_GE(status(node(2)).epoch.counter, now.counter);
    EXPECT_EQ(status(node(2)).last, status(node(1)).last);
    EXPECT_EQ(status(node(1)).peers[0].connection, ConnectionState::Connected);
    disconnect(1, 2);
    exchange();
  }
}

// The record of the forced promotion was lost here. Another replica has it, but will cut it off. So that
// replica reports it.
TEST_F(TailTest, ForceIsRememberedAlsoWhereItsRecordWasLost) {
  make_promoted(1, 3);
  write_flush(1, 0);
  exchange();
  node(1).step(Demote{78});
  exchange();
  disconnect(1, 2);
  disconnect(1, 3);
  Lsn before = status(node(2)).last;
  std::vector<std::byte> journal = node(2).journal, data = node(2).data;
  lost = [](ReplicaId to, const PeerMessage& m) { return to == 3 && std::holds_alternative<Commit>(m); };
  ASSERT_TRUE(promote(2, true)->ok);
  lost = nullptr;
  ASSERT_GT(status(node(3)).durable, before);
  disconnect(2, 3);
  node(2).journal = journal, node(2).data = data;  // restored from a copy
  restart(2);
  ASSERT_EQ(status(node(2)).last, before);
  connect(2, 3);
  exchange();
  std::size_t from = node(2).sent.size();
  auto granted = promote(2);
  ASSERT_TRUE(granted && granted->ok) << (granted ? granted->text : "no answer");
  Epoch granted_epoch;
  EpochTable told;
  for (std::size_t i = from; i < node(2).sent.size(); ++i) {
    if (auto* request = std::get_if<MatchRequest>(&node(2).sent[i]); request && granted_epoch.id.is_nil())
      granted_epoch = request->epoch;
    if (auto* state = std::get_if<NodeState>(&node(2).sent[i]); state && state->epoch.epoch == granted_epoch)
      told.push_back(state->epoch);
  }
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(told.front().flags & epoch_by_force);
}

// Replica 1 has acknowledged a record, which has rotted there, and is promoted nevertheless. Its member
// replica 2 has the record, but did not get its commit.
TEST_F(TailTest, WhatSomebodyPromotedInSpiteOfALossHasLostIsKept) {
  for (bool crash : {false, true}) {
    make_promoted(1, 2);
    write_flush(1, 0);
    exchange();
    lost = [](ReplicaId, const PeerMessage& m) { return std::holds_alternative<Commit>(m); };
    fill(1, 1, 2, 0x77);
    ASSERT_EQ(status(node(1)).commit, status(node(2)).last);
    ASSERT_LT(status(node(2)).commit, status(node(2)).last);
    up[{1, 2}] = false;
    fill(1, 2, 3, 0x88);
    lost = nullptr;
    disconnect(1, 2);
    rot(1, 0x77);
    restart(2);
    Lsn last = status(node(2)).last;
    ASSERT_LT(status(node(2)).commit, last);
    ASSERT_LT(status(node(1)).last, last);
    if (crash) {  // crash before the epoch's record is durable: the command must be repeated
      node(1).held = [](Disk kind) { return kind == Disk::journal_write; };
      node(1).step(Promote{9, true, true});
      exchange();
      node(1).held = nullptr;
      node(1).restart();
      ASSERT_TRUE(status(node(1)).inconsistent);
    }
    node(1).step(Promote{9, true, true});
    exchange();
    ASSERT_TRUE(node(1).commands.back().ok) << node(1).commands.back().text;
    connect(1, 2);
    exchange();
    EXPECT_TRUE(status(node(2)).peers[0].split_brain) << status(node(2)).peers[0].why;
    EXPECT_EQ(status(node(2)).last, last);
    EXPECT_TRUE(node(2).archived.empty());
    node(1).restart();
    EXPECT_FALSE(status(node(1)).inconsistent);
  }
}

// Only the log of replica 2 has three epochs, and its tail will be cut. The first of these epochs excludes
// replica 1. A replica that ended in it must find it named by the promotion of replica 1. A replica that
// ended in one of the others finds replica 1 counted.
TEST_F(TailTest, APromotionNamesTheNewestEpochThatDoesWithoutIt) {
  make(3);
  auto epoch = [&](std::uint64_t counter) { return Epoch{counter, Uuid::generate(node(1).random)}; };
  EpochTable table{{epoch(4), Lsn{1}, 2, set_of(2) | set_of(3)},
                   {epoch(5), Lsn{5}, 2, set_of(1) | set_of(2) | set_of(3)},
                   {epoch(6), Lsn{7}, 2, set_of(1) | set_of(2)}};
  NodeState state;
  state.newest_epoch = 6;
  state.epoch = table.back();
  state.last = {Lsn{0}, genesis_hash(Shell::volume(), 1024)};
  state.epochs = table;
  node(1).step(PeerUp{2});
  node(1).input(2, state);
  node(1).step(Promote{3, false});
  auto claim = std::find_if(node(1).sent.begin(), node(1).sent.end(),
                            [](const PeerMessage& m) { return std::holds_alternative<Claim>(m); });
  ASSERT_NE(claim, node(1).sent.end());
  node(1).input(2, ClaimReply{std::get<Claim>(*claim).attempt, true, ""});
  while (node(1).complete_one()) {
  }
  ASSERT_EQ(status(node(1)).role, Role::primary) << status(node(1)).waits_for;
  auto& told = std::get<NodeState>(
      *std::find_if(node(1).sent.rbegin(), node(1).sent.rend(), [](const PeerMessage& m) {
        return std::holds_alternative<NodeState>(m) && std::get<NodeState>(m).epoch.epoch.counter == 7;
      }));
  EXPECT_TRUE(comes_after(told.epoch, table[0].epoch));
}

TEST_F(TailTest, TwoHistoriesThatSomebodyReliesOnAreKept) {
  make_promoted(1, 2);
  disconnect(1, 2);
  ASSERT_TRUE(promote(2, true)->ok);
  auto f2 = write_flush(2, 7);
  exchange();
  EXPECT_EQ(node(2).done.at(f2), 0);
  node(1).step(Promote{3, true});
  exchange();
  auto f1 = write_flush(1, 8);
  exchange();
  EXPECT_EQ(node(1).done.at(f1), 0);
  Lsn last1 = status(node(1)).last, last2 = status(node(2)).last;
  connect(1, 2);
  exchange();
  EXPECT_TRUE(status(node(1)).role == Role::primary && status(node(2)).role == Role::primary);
  ASSERT_FALSE(node(1).closed.empty());
  EXPECT_NE(node(1).closed.back().reason.find("split brain"), std::string::npos);

  // After one is demoted, its history still is not cut off.
  disconnect(1, 2);
  node(1).step(Demote{1});
  exchange();
  connect(1, 2);
  exchange();
  EXPECT_TRUE(status(node(2)).peers[0].split_brain);
  EXPECT_EQ(status(node(1)).last, last1);
  EXPECT_GE(status(node(2)).last, last2);
  EXPECT_TRUE(node(1).archived.empty() && node(2).archived.empty());
}

// Records that only an old primary has are archived before they are cut off.
TEST_F(TailTest, ATailThatNobodyWasToldOfIsArchivedAndCutOff) {
  make_promoted(1, 2);
  node(2).held = [](Disk kind) { return kind == Disk::journal_write; };
  auto f = write_flush(1, 7);
  disconnect(1, 2);  // no record has arrived
  exchange();
  ASSERT_FALSE(node(1).is_done(f));
  node(2).held = nullptr;
  ASSERT_TRUE(promote(2, true)->ok);
  write_flush(2, 8);
  exchange();
  node(1).held = [](Disk kind) { return kind == Disk::archive; };
  connect(1, 2);
  exchange();
  EXPECT_EQ(status(node(1)).role, Role::secondary)
      << "it never acknowledged a write alone, so its tail is cut";
  EXPECT_EQ(node(1).done.at(f), EIO);
  disconnect(1, 2);
  connect(1, 2);
  exchange();
  EXPECT_EQ(node(1).pending(Disk::archive), 1u);
  EXPECT_GT(status(node(1)).last, status(node(2)).peers[0].durable)
      << "no record is cut before it is archived";
  node(1).held = nullptr;
  exchange();
  EXPECT_FALSE(node(1).archived.empty());
  EXPECT_EQ(status(node(1)).last, status(node(2)).last);
}

// Cut records are erased from the journal before a new record takes their place, also if the connection is
// lost meanwhile.
TEST_F(TailTest, ACutTailIsErased) {
  for (bool interrupted : {false, true}) {
    make_tail(100);
    node(1).held = [](Disk kind) { return kind == Disk::superblock; };
    connect(1, 2);
    exchange();
    EXPECT_EQ(node(1).pending(Disk::superblock), 1u);
    EXPECT_EQ(node(1).pending(Disk::journal_write), 0u) << "first invalid, then erased";
    node(1).held = [](Disk kind) { return kind == Disk::journal_write; };
    exchange();
    ASSERT_GT(node(1).pending(Disk::journal_write), 1u);
    EXPECT_LT(status(node(1)).last, status(node(2)).last)
        << "no record is accepted while cut records are erased";
    if (interrupted) {
      disconnect(1, 2);
      connect(1, 2);
      exchange();
    }
    node(1).held = nullptr;
    exchange();
    EXPECT_EQ(status(node(1)).last, status(node(2)).last);
    MemoryFile journal{std::vector<std::byte>(node(1).journal)};
    auto sb = journal::load_superblock(journal);
    ASSERT_TRUE(sb);
    auto scan = journal::scan_journal(journal, sb->superblock);
    ASSERT_TRUE(scan);
    EXPECT_TRUE(scan->leftover.empty()) << scan->leftover.size();
  }
}

TEST_F(TailTest, NothingIsTakenWhereTheCutTailCannotBeErased) {
  make_tail(10);
  bool first = true;
  node(1).notices.clear();
  node(1).fault = [&](Disk kind) {
    return kind == Disk::journal_write && std::exchange(first, false) ? EIO : 0;
  };
  connect(1, 2);
  exchange();
  EXPECT_FALSE(first);
  EXPECT_LT(status(node(1)).last, status(node(2)).last);
  EXPECT_NE(status(node(1)).peers[0].connection, ConnectionState::Connected);
  for (const std::string& notice : node(1).notices)
    EXPECT_EQ(notice.find("is connected at"), std::string::npos) << notice;
}

TEST_F(TailTest, WhatCannotBeArchivedIsNotCutOff) {
  make_promoted(1, 2);
  write_flush(1, 7);
  disconnect(1, 2);
  exchange();
  Lsn last = status(node(1)).last;
  ASSERT_TRUE(promote(2, true)->ok);
  connect(1, 2);
  exchange();
  disconnect(1, 2);
  node(1).fault = [](Disk kind) { return kind == Disk::archive ? ENOSPC : 0; };
  connect(1, 2);
  exchange();
  EXPECT_EQ(status(node(1)).last, last);
  EXPECT_NE(status(node(1)).peers[0].why.find("cannot be archived"), std::string::npos)
      << status(node(1)).peers[0].why;
}

// Its journal write is in flight when the cut comes, and fails. The disk has no such record.
TEST_F(TailTest, WhatCouldNotBeWrittenIsNotArchived) {
  make_promoted(1, 2);
  fill(1, 0, 1, 3);
  for (ReplicaId id : {1, 2}) node(id).held = [](Disk kind) { return kind == Disk::journal_write; };
  write_flush(1, 7);
  exchange();
  disconnect(1, 2);
  node(1).held = nullptr;
  restart(1);
  ASSERT_GT(status(node(2)).last, status(node(1)).last);
  connect(1, 2);
  exchange();
  ASSERT_TRUE(promote(1)->ok);
  ASSERT_EQ(node(2).pending(Disk::journal_write), 1u);
  node(2).fault = [](Disk kind) { return kind == Disk::journal_write ? EIO : 0; };
  node(2).held = nullptr;
  exchange();
  EXPECT_TRUE(status(node(2)).failed);
  EXPECT_TRUE(node(2).archived.empty());
}

}  // namespace
}  // namespace twinloft::repl::core
