// Promotion with an arbiter: when the arbiter's value refuses a replica, and what the value passes on.
#include <gtest/gtest.h>

#include "roles.h"

namespace twinloft::repl::core {
namespace {

struct ArbiterRolesTest : RolesTest {
  // Answers as a healthy arbiter with this value would, until the command is answered.
  std::optional<EpochValue> value;
  CommandDone promote_with_arbiter(ReplicaId id, bool force = false, bool accept_loss = false) {
    std::size_t before = node(id).commands.size(), asked = node(id).arbiter_requests.size();
    node(id).step(Promote{77, force, accept_loss});
    exchange();
    while (node(id).commands.size() == before && node(id).arbiter_requests.size() > asked) {
      ++asked;
      const ArbiterRequest& r = node(id).arbiter_requests.back();
      bool equal = r.read || r.expected == value;
      if (!r.read && equal) value = r.desired;
      answer(id, equal ? Outcome::granted : Outcome::refused, value);
    }
    return node(id).commands.size() > before ? node(id).commands.back() : CommandDone{0, false, "no answer"};
  }
  // Replica 1 of two is primary, and has written a block.
  void make_promoted_with_arbiter() {
    make(2, Arbiter::external);
    connect_all();
    exchange();
    ASSERT_TRUE(promote_with_arbiter(1).ok);
    write_flush(1, 0);
    exchange();
  }
  // Replica 2 has epochs from a time without an arbiter. Replica 1 is new, and primary with an arbiter.
  void make_strangers() {
    make(2, Arbiter::manual);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(promote(2, true)->ok);
      write_flush(2, 3);
      node(2).step(Demote{78});
      exchange();
    }
    create_anew(1);
    ASSERT_TRUE(promote_with_arbiter(1, true).ok);
    write_flush(1, 0);
    exchange();
  }
  void create_anew(ReplicaId id) {
    Config c;
    c.arbiter = Arbiter::external;
    c.ask_peers_for = ask_peers_for;
    c.send_window_bytes = 4u << 20;
    for (ReplicaId other = 1; other <= nodes.size(); ++other)
      if (other != id) c.peers.push_back({other, Protocol::C});
    nodes[id - 1] = std::make_unique<Shell>(ShellOptions{.replica = id, .config = c, .seed = 99});
    delivered[id - 1] = 0;
  }
};

TEST_F(ArbiterRolesTest, AnEmptyReplicaIsNotPromotedByItsNumber) {
  make_promoted_with_arbiter();
  // Both are in the set. The disk of 2 is replaced, and 1 fails before it removes 2 from the set.
  disconnect(1, 2);
  create_anew(2);
  ASSERT_EQ(value->in_sync, set_of(1) | set_of(2));
  CommandDone refused = promote_with_arbiter(2);
  EXPECT_FALSE(refused.ok);
  EXPECT_NE(refused.text.find("replica 2 is empty, but the arbiter counts it as in sync in epoch 1: it was "
                              "recreated. Connect it "
                              "and let it resync, or use --force and lose the data of replica 1"),
            std::string::npos)
      << refused.text;
  EXPECT_EQ(value->writer, 1u);
  EXPECT_EQ(status(node(2)).waits_for, refused.text);
  CommandDone forced = promote_with_arbiter(2, true);
  EXPECT_TRUE(forced.ok) << forced.text;
  EXPECT_EQ(value->writer, 2u);
  EXPECT_EQ(value->in_sync, set_of(2));
}

// Replica 2 had continued alone, so it is the whole set. Its disk was replaced. Replica 1 holds the newest
// copy that is left.
TEST_F(ArbiterRolesTest, AnEmptyReplicaIsNotPromotedWhereItIsTheWholeSet) {
  make_promoted_with_arbiter();
  disconnect(1, 2);
  value->epoch.counter += 4;
  value->writer = 2;
  value->in_sync = set_of(2);
  create_anew(2);
  CommandDone alone = promote_with_arbiter(2);
  EXPECT_FALSE(alone.ok);
  EXPECT_NE(alone.text.find("replica 2 is empty"), std::string::npos) << alone.text;
  restart(1);
  connect(1, 2);
  exchange();
  CommandDone beside = promote_with_arbiter(2);
  EXPECT_FALSE(beside.ok);
  EXPECT_EQ(value->in_sync, set_of(2));
}

// The first promotion was granted, and the primary failed before it wrote a record.
TEST_F(ArbiterRolesTest, WhereNobodyHasAnythingAnEmptyReplicaWillDo) {
  make(2, Arbiter::external);
  SeededRandom random(5);
  value = EpochValue{{1, Uuid::generate(random)}, 1, set_of(1) | set_of(2), Uuid::generate(random)};
  CommandDone alone = promote_with_arbiter(2);
  EXPECT_FALSE(alone.ok);
  EXPECT_NE(alone.text.find("replica 2 is empty"), std::string::npos) << alone.text;
  connect_all();
  exchange();
  CommandDone together = promote_with_arbiter(2);
  EXPECT_TRUE(together.ok) << together.text;
  EXPECT_EQ(value->writer, 2u);
  EXPECT_EQ(value->epoch.counter, 2u);
}

// The first primary loses power during the write of its first record. All replicas are empty.
TEST_F(ArbiterRolesTest, NobodyHasTheFirstRecordBeforeItsWriter) {
  make(2, Arbiter::external);
  connect_all();
  exchange();
  node(1).held = [](Disk kind) { return kind == Disk::journal_write; };
  ASSERT_TRUE(promote_with_arbiter(1).ok);
  exchange();
  EXPECT_EQ(status(node(2)).last.v, 0u);
  value->in_sync = set_of(1);
  disconnect(1, 2);
  node(1).held = nullptr;
  restart(1);
  connect(1, 2);
  exchange();
  CommandDone again = promote_with_arbiter(1);
  EXPECT_TRUE(again.ok) << again.text;
  exchange();
  EXPECT_EQ(status(node(2)).last, status(node(1)).last);
}

// Found by the simulator: the primary lost power while the arbiter counted no other replica. No replica could
// be promoted.
TEST_F(ArbiterRolesTest, WhoHoldsNothingYetRemovesNobody) {
  make(2, Arbiter::external);
  connect_all();
  exchange();
  node(1).held = [](Disk kind) { return kind == Disk::journal_write; };
  ASSERT_TRUE(promote_with_arbiter(1).ok);
  exchange();
  std::size_t asked = node(1).arbiter_requests.size();
  disconnect(1, 2);
  exchange();
  node(1).pass_time(std::chrono::seconds(10));
  exchange();
  EXPECT_EQ(node(1).arbiter_requests.size(), asked);
  node(1).held = nullptr;
  exchange();
  node(1).pass_time(std::chrono::seconds(10));
  exchange();
  EXPECT_GT(node(1).arbiter_requests.size(), asked) << "its first record is durable";
}

// A delayed grant may be out of date: other replicas may be promoted and demoted meanwhile.
TEST_F(ArbiterRolesTest, TheArbiterIsNotAskedBeforeEverythingUnderWayHasEnded) {
  make_promoted_with_arbiter();
  node(2).held = [](Disk kind) { return kind == Disk::journal_write; };
  write_flush(1, 1);
  while (node(1).complete_one()) {
  }
  disconnect(1, 2);
  node(2).held = nullptr;
  ASSERT_TRUE(promote_with_arbiter(2).ok);
  restart(1);
  node(1).held = [](Disk kind) { return kind == Disk::superblock; };
  connect(1, 2);
  exchange();
  ASSERT_EQ(node(1).pending(Disk::superblock), 1u) << "the superblock of a cut";
  disconnect(1, 2);
  std::size_t asked = node(1).arbiter_requests.size();
  node(1).step(Promote{77, false});
  exchange();
  EXPECT_EQ(node(1).arbiter_requests.size(), asked);
  node(1).pass_time(std::chrono::seconds(10));
  EXPECT_EQ(node(1).arbiter_requests.size(), asked);
  EXPECT_NE(node(1).commands.back().text.find("has not finished within 10 s"), std::string::npos)
      << node(1).commands.back().text;
  node(1).step(Promote{78, false});
  node(1).held = nullptr;
  exchange();
  EXPECT_EQ(node(1).arbiter_requests.size(), asked + 1);
}

// A replica whose arbiter does not answer repeats its question, and must not delay another replica's
// promotion.
TEST_F(ArbiterRolesTest, WhoGetsNoAnswerGivesWay) {
  make_promoted_with_arbiter();
  node(1).step(Demote{4});
  exchange();
  node(1).step(Promote{5, false});
  exchange();
  answer(1, Outcome::granted, value);
  ASSERT_FALSE(node(1).arbiter_requests.back().read);
  // until the promise of replica 2 to replica 1 has expired
  for (ReplicaId id : {1, 2}) node(id).pass_time(std::chrono::seconds(25));
  node(2).step(Promote{6, false});
  exchange();
  EXPECT_NE(node(2).commands.back().text.find("is asking the arbiter itself"), std::string::npos)
      << node(2).commands.back().text;
  answer(1, Outcome::unknown);
  CommandDone other = promote_with_arbiter(2);
  EXPECT_TRUE(other.ok) << other.text;
  EXPECT_NE(node(1).commands.back().text.find("replica 2 is being promoted"), std::string::npos)
      << node(1).commands.back().text;
  EXPECT_EQ(status(node(1)).role, Role::secondary);
}

// A forced promotion is granted, and the primary fails before its record is durable. No log has the record,
// so the next promotion learns of the force from the arbiter's value. Later the log has the record.
TEST_F(ArbiterRolesTest, ForceThatNoLogTellsOfIsInTheValue) {
  make_promoted_with_arbiter();
  EXPECT_FALSE(value->by_force);
  disconnect(1, 2);
  node(2).held = [](Disk kind) { return kind == Disk::journal_write; };
  ASSERT_TRUE(promote_with_arbiter(2, true).ok);
  EXPECT_TRUE(value->by_force);
  for (bool durable : {false, true}) {
    node(2).restart();
    node(2).held = nullptr;
    ASSERT_TRUE(promote_with_arbiter(2).ok);
    EXPECT_EQ(value->by_force, !durable);
    exchange();
    restart(2);
  }
  ASSERT_TRUE(promote_with_arbiter(2).ok);
  std::size_t before = node(2).sent.size();
  node(1).restart();
  connect(1, 2);
  exchange();
  bool told = std::any_of(node(2).sent.begin() + static_cast<std::ptrdiff_t>(before), node(2).sent.end(),
                          [](const PeerMessage& m) {
                            auto* begin = std::get_if<Begin>(&m);
                            return begin &&
                                   std::any_of(begin->epochs.begin(), begin->epochs.end(),
                                               [](const EpochEntry& e) { return e.flags & epoch_by_force; });
                          });
  EXPECT_TRUE(told);
}

// As without an arbiter: this replica's own log may be older than those of other replicas.
TEST_F(ArbiterRolesTest, TheFirstPromotionNeedsEveryMember) {
  make(3, Arbiter::external);
  connect(1, 2);
  exchange();
  CommandDone refused = promote_with_arbiter(1);
  EXPECT_FALSE(refused.ok);
  EXPECT_NE(refused.text.find("first promotion needs every recorded member. Not reachable: replica 3"),
            std::string::npos)
      << refused.text;
  EXPECT_EQ(value, std::nullopt);
  connect(1, 3);
  connect(2, 3);
  exchange();
  EXPECT_TRUE(promote_with_arbiter(1).ok);
  disconnect(1, 2);
  disconnect(1, 3);
  exchange();
  EXPECT_TRUE(promote_with_arbiter(2).ok) << "later the set decides, not the connected replicas";
}

// No member is removed below min_in_sync, so the primary has no other reason to ask the arbiter.
TEST_F(ArbiterRolesTest, APrimaryThatMeetsANewerEpochAsksWhetherItStillCounts) {
  make(2, Arbiter::external, OnPeerLoss::suspend, 2);
  connect_all();
  exchange();
  ASSERT_TRUE(promote_with_arbiter(1).ok);
  write_flush(1, 0);
  exchange();
  disconnect(1, 2);
  ASSERT_TRUE(promote_with_arbiter(2).ok);
  // Replica 2 restarts before replica 1 hears of the promotion.
  restart(2);
  ASSERT_EQ(status(node(1)).role, Role::primary);
  std::size_t asked = node(1).arbiter_requests.size();
  connect(1, 2);
  exchange();
  ASSERT_EQ(node(1).arbiter_requests.size(), asked + 1);
  EXPECT_TRUE(node(1).arbiter_requests.back().read);
  answer(1, Outcome::unknown);
  EXPECT_EQ(status(node(1)).role, Role::primary);
  disconnect(1, 2);
  connect(1, 2);
  exchange();
  ASSERT_EQ(node(1).arbiter_requests.size(), asked + 2);
  answer(1, Outcome::granted, value);
  EXPECT_EQ(status(node(1)).role, Role::secondary);
  disconnect(1, 2);
  connect(1, 2);
  exchange();
  EXPECT_TRUE(promote_with_arbiter(2).ok);
}

// They show as split brain, whatever their counters.
TEST_F(ArbiterRolesTest, EpochsThatTheArbiterHasNotGrantedAreASplitBrain) {
  make_strangers();
  Lsn last = status(node(2)).last;
  for (int i = 0; i < 3; ++i) {
    std::size_t asked = node(1).arbiter_requests.size();
    connect(1, 2);
    exchange();
    while (node(1).arbiter_requests.size() > asked) {
      asked++;
      const ArbiterRequest& r = node(1).arbiter_requests.back();
      if (!r.read) value = r.desired;
      answer(1, Outcome::granted, value);
    }
    if (status(node(2)).peers[0].split_brain) break;
    disconnect(1, 2);
    exchange();
  }
  EXPECT_EQ(status(node(1)).role, Role::primary);
  EXPECT_TRUE(status(node(2)).peers[0].split_brain) << status(node(2)).peers[0].why;
  EXPECT_EQ(status(node(2)).last, last);
}

// An open request to the arbiter must not delay the write of the superblock.
TEST_F(ArbiterRolesTest, ALossIsSettledThoughTheArbiterIsAway) {
  make_strangers();
  fill(1, 10, 15, 0x77);
  fill(1, 20, 25, 5);
  rot(1, 0x77);
  node(1).held = [](Disk kind) { return kind == Disk::journal_write; };
  ASSERT_TRUE(promote_with_arbiter(1, true, true).ok);
  connect(1, 2);
  exchange();
  ASSERT_TRUE(node(1).arbiter_requests.back().read) << "asks whether its grant still counts";
  answer(1, Outcome::granted, value);
  ASSERT_FALSE(node(1).arbiter_requests.back().read) << "asks for an epoch above that of the peer";
  answer(1, Outcome::unknown);
  node(1).held = nullptr;
  exchange();
  auto sb = decode_superblock({node(1).journal.data(), block_size});
  ASSERT_TRUE(sb);
  EXPECT_EQ(sb->disk, DiskState());
}

// Replica 3 had acknowledged every record. It may have cut these records off for another primary since. Its
// old acknowledgements complete no flush, and allow no write to the data area.
TEST_F(RolesTest, NothingIsCommittedByWhatAMemberThatIsAwayHasAcknowledged) {
  make(3);
  connect_all();
  exchange();
  ASSERT_TRUE(promote(1)->ok);
  node(2).held = [](Disk kind) { return kind == Disk::journal_write; };
  auto flush = write_flush(1, 5);
  exchange();
  EXPECT_FALSE(node(1).is_done(flush));
  disconnect(1, 3);
  node(2).held = nullptr;
  exchange();
  node(1).step(CheckpointNow{});
  exchange();
  EXPECT_TRUE(status(node(1)).suspended);
  EXPECT_FALSE(node(1).is_done(flush));
  EXPECT_LT(status(node(1)).commit, status(node(1)).last);
  EXPECT_EQ(status(node(2)).durable, status(node(1)).last);
  EXPECT_LT(status(node(2)).commit, status(node(1)).last);
  connect(1, 3);
  exchange();
  EXPECT_EQ(status(node(1)).commit, status(node(1)).last);
  EXPECT_EQ(node(1).done.at(flush), 0);
}

// The arbiter's data was restored from an old copy. In it, replica 2 is in sync, but the primary has
// continued without replica 2 since.
struct RolledBackTest : ArbiterRolesTest {
  std::optional<EpochValue> old;
  void answer_all(ReplicaId id) {
    for (std::size_t i = 0; i < node(id).arbiter_requests.size(); ++i) {
      ArbiterRequest r = node(id).arbiter_requests[i];
      if (!answered.emplace(id, r.token).second) continue;
      bool equal = r.read || r.expected == value;
      if (!r.read && equal) value = r.desired;
      node(id).step(ArbiterAnswer{r.token, equal ? Outcome::granted : Outcome::refused, value, ""});
      exchange();
    }
  }
  // Replica 1 continues alone. Only replica 1 has the writes that it acknowledges then.
  void make_alone() {
    make_promoted_with_arbiter();
    old = value;
    disconnect(1, 2);
    auto f = write_flush(1, 7);
    exchange();
    answer_all(1);
    ASSERT_EQ(node(1).done.at(f), 0);
    ASSERT_EQ(value->in_sync, set_of(1));
  }
  // each question is answered once, since the core ignores a second answer
  std::set<std::pair<ReplicaId, Token>> answered;
};

TEST_F(RolledBackTest, WhatWasAcknowledgedMeanwhileIsNotCutOff) {
  make_alone();
  Lsn last = status(node(1)).last;
  restart(1);
  value = old;
  // Alone, replica 2 cannot detect this. Its epochs get higher than that of replica 1.
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(promote_with_arbiter(2).ok) << node(2).commands.back().text;
    write_flush(2, 8);
    exchange();
    answer_all(2);
    node(2).step(Demote{79});
    exchange();
  }
  ASSERT_TRUE(promote_with_arbiter(2).ok);
  ASSERT_GT(value->epoch.counter, 3u);
  connect(1, 2);
  exchange();
  answer_all(2);
  EXPECT_TRUE(status(node(1)).peers[0].split_brain) << status(node(1)).peers[0].why;
  EXPECT_EQ(status(node(1)).last, last);
}

TEST_F(RolledBackTest, WhoKnowsOfANewerEpochNeedsEveryMember) {
  make_alone();
  connect(1, 2);
  exchange();
  answer_all(1);
  ASSERT_EQ(value->in_sync, set_of(1) | set_of(2)) << "replica 2 is a member again";
  disconnect(1, 2);
  value = old;
  CommandDone refused = promote_with_arbiter(2);
  EXPECT_FALSE(refused.ok);
  EXPECT_NE(refused.text.find("the arbiter was restored from an older copy"), std::string::npos)
      << refused.text;
}

// The arbiter counts a replica that this configuration does not name. That replica could be promoted, and
// acknowledge writes without this one.
TEST_F(ArbiterRolesTest, AMemberThatTheConfigurationDoesNotNameIsNotForgotten) {
  make_promoted_with_arbiter();
  node(1).step(Demote{78});
  exchange();
  value->in_sync |= set_of(3);
  CommandDone refused = promote_with_arbiter(1);
  EXPECT_FALSE(refused.ok);
  EXPECT_NE(refused.text.find("set has replica 3, which is not in this configuration"), std::string::npos)
      << refused.text;
}

}  // namespace
}  // namespace twinloft::repl::core
