// A split brain is stored on both sides. It ends when one history is discarded, or found in the other.
#include "roles.h"

namespace twinloft::repl::core {
namespace {

struct SplitBrainTest : RolesTest {
  // Both continued alone, and have met as primaries.
  void part_and_meet() {
    make_promoted(1, 2);
    write_flush(1, 1);
    exchange();
    disconnect(1, 2);
    ASSERT_TRUE(promote(2, true)->ok);
    node(1).step(Promote{3, true});
    for (ReplicaId id : {1, 2}) {
      in = filled(block_size, static_cast<int>(id));
      auto f = write_flush(id, id + 6);
      exchange();
      ASSERT_EQ(node(id).done.at(f), 0);
    }
    meet();
    ASSERT_TRUE(split(1) && split(2));
  }
  // Replica 1 continued alone, then replica 2 with replica 3 as its secondary. Replicas 1 and 3 meet as
  // secondaries.
  void part_from_two() {
    make_promoted(1, 3);
    write_flush(1, 1);
    exchange();
    disconnect(1, 2), disconnect(1, 3);
    go_on_in_turn();
    connect(1, 3);
    exchange();
  }
  // One after the other, both by force. They were never primary at the same time.
  void go_on_in_turn() {
    node(1).step(Promote{3, true});
    write_flush(1, 2);
    exchange();
    demote(1);
    ASSERT_TRUE(promote(2, true)->ok);
    write_flush(2, 3);
    exchange();
  }
  void meet() {
    connect(1, 2);
    exchange();
  }
  void demote(ReplicaId id) {
    node(id).step(Demote{1});
    exchange();
    ASSERT_EQ(status(node(id)).role, Role::secondary);
  }
  bool split(ReplicaId id) { return status(node(id)).peers[0].split_brain; }
  void end_connection() {
    if (up[{1, 2}]) disconnect(1, 2);
    exchange();
  }
  // The way out that the text of a refused promotion names.
  void resolve(ReplicaId winner, ReplicaId loser) {
    ASSERT_TRUE(promote(winner, true)->ok);
    exchange();
    node(loser).commands.clear();
    node(loser).step(Discard{5});
    // Two replicas that were not matched yet need a first connection to find the common part.
    for (int turn = 0; turn < 2 && node(loser).commands.empty(); ++turn) end_connection(), meet();
    ASSERT_FALSE(node(loser).commands.empty());
    EXPECT_TRUE(node(loser).commands.back().ok) << node(loser).commands.back().text;
    exchange();
    for (ReplicaId id : {1, 2}) checkpoint(id);
    EXPECT_FALSE(split(1) || split(2));
    EXPECT_EQ(node(1).data, node(2).data);
    EXPECT_EQ(status(node(winner)).in_sync, set_of(1) | set_of(2));
  }
};

TEST_F(SplitBrainTest, ItStaysWhenBothAreDemoted) {
  part_and_meet();
  end_connection();
  demote(1), demote(2);
  EXPECT_TRUE(split(1) && split(2));
  meet();
  EXPECT_TRUE(split(1) && split(2)) << "two secondaries are not matched";
  expect_not_promoted(1, "run `discard` on the other");
  expect_not_promoted(2, "Promote that replica with --force");
  resolve(2, 1);
}

// Only their epochs show it.
TEST_F(SplitBrainTest, TwoSecondariesThatWentOnWithoutEachOtherShowIt) {
  make_promoted(1, 2);
  write_flush(1, 1);
  exchange();
  disconnect(1, 2);
  go_on_in_turn();
  demote(2);
  ASSERT_FALSE(split(1) || split(2));
  meet();
  EXPECT_TRUE(split(1) && split(2));
  expect_not_promoted(1, "run `discard` on the other");
  expect_not_promoted(2, "run `discard` on the other");
  restart(1), restart(2);
  EXPECT_TRUE(split(1) && split(2));
  resolve(2, 1);
}

// Replica 3 has followed replica 2. Its split from replica 1 is shown before any promotion.
TEST_F(SplitBrainTest, WhoFollowsOneSideShowsItBesideTheOther) {
  part_from_two();
  EXPECT_TRUE(status(node(3)).peers[0].split_brain);
  EXPECT_TRUE(status(node(1)).peers[1].split_brain);
}

// Replica 3 followed that side, and is away when replica 1 discards its own side. After that, no split brain
// is left to show.
TEST_F(SplitBrainTest, WhoGivesUpItsHistoryHasPartedFromNobodyAnyMore) {
  part_from_two();
  disconnect(1, 3), disconnect(2, 3);
  node(2).step(Promote{3, true});
  exchange();
  ASSERT_TRUE(status(node(1)).peers[1].split_brain);
  meet();
  ASSERT_TRUE(split(1));
  node(1).step(Discard{5});
  end_connection(), meet();
  for (ReplicaId id : {1, 2}) checkpoint(id);
  EXPECT_FALSE(split(1) || split(2));
  EXPECT_FALSE(status(node(1)).peers[1].split_brain);
}

TEST_F(SplitBrainTest, WhoWasOnlyLeftOutShowsNone) {
  make_promoted(1, 2);
  write_flush(1, 1);
  exchange();
  disconnect(1, 2);
  node(1).step(Promote{3, true});
  write_flush(1, 2);
  exchange();
  demote(1);
  meet();
  EXPECT_FALSE(split(1) || split(2));
  ASSERT_TRUE(promote(1)->ok);
  exchange();
  EXPECT_EQ(status(node(1)).in_sync, set_of(1) | set_of(2));
}

// The primary is reachable, but its link is refused. A promotion waits for the next connection, and asks it.
TEST_F(SplitBrainTest, ForceAsksAPrimaryWhoseLinkIsRefused) {
  ask_refused_for = Config().ask_refused_for;
  part_and_meet();
  end_connection();
  demote(2);
  meet();
  ASSERT_TRUE(split(2));
  end_connection();
  EXPECT_TRUE(status(node(2)).peers[0].primary) << "its last state is recent";
  node(2).commands.clear();
  EXPECT_FALSE(promote(2, true)) << "no replica was asked";
  meet();
  ASSERT_EQ(node(2).commands.size(), 1u);
  EXPECT_EQ(node(2).commands[0].text, "replica 1 is Primary: demote it first");
  end_connection();
  // The primary does not connect again, so it may be off by then.
  node(2).commands.clear();
  EXPECT_FALSE(promote(2, true));
  auto next = node(2).core->next_tick();
  ASSERT_TRUE(next);
  EXPECT_LE(next->ns, (node(2).now() + ask_refused_for).ns);
  node(2).pass_time(ask_refused_for);
  exchange();
  ASSERT_EQ(node(2).commands.size(), 1u);
  EXPECT_TRUE(node(2).commands[0].ok) << node(2).commands[0].text;
  EXPECT_NE(node(2).commands[0].text.find("THE SPLIT BRAIN WITH REPLICA 1 IS NOT RESOLVED"),
            std::string::npos)
      << node(2).commands[0].text;
  EXPECT_FALSE(status(node(2)).peers[0].known);
}

// A lost connection is different: it may never come back, so the promotion does not wait.
TEST_F(SplitBrainTest, ForceDoesNotWaitForWhoWasLost) {
  ask_refused_for = Config().ask_refused_for;
  make_promoted(1, 2);
  write_flush(1, 1);
  exchange();
  disconnect(1, 2);
  EXPECT_FALSE(status(node(2)).peers[0].known);
  auto done = promote(2, true);
  ASSERT_TRUE(done && done->ok);
  EXPECT_EQ(done->text.find("SPLIT BRAIN WITH"), std::string::npos) << done->text;
}

TEST_F(SplitBrainTest, WhoIsRefusedShowsTheEpochThatIsHere) {
  part_and_meet();
  end_connection();
  Epoch own = status(node(1)).epoch;
  demote(1);
  meet();
  ASSERT_NE(status(node(2)).epoch, own);
  EXPECT_EQ(status(node(1)).epoch, own);
}

// Each side has begun more epochs since than its table holds. The common part is no longer known.
TEST_F(SplitBrainTest, AfterLongChainsNoRecordIsNamed) {
  part_and_meet();
  end_connection();
  for (int turn = 0; turn < 20; ++turn)
    for (ReplicaId id : {1, 2}) {
      demote(id);
      ASSERT_TRUE(promote(id, true)->ok);
      for (int times = 0; times < 3; ++times) fill(id, 0, 250, times);
      checkpoint(id);
    }
  demote(1);
  node(1).notices.clear();
  meet();
  ASSERT_TRUE(split(1) && split(2));
  bool named = false;
  for (const std::string& text : node(1).notices) {
    EXPECT_EQ(text.find("common record is 0"), std::string::npos) << text;
    named = named || text.find("split brain") != std::string::npos;
  }
  EXPECT_TRUE(named);
  node(1).commands.clear();
  node(1).step(Discard{5});
  end_connection(), meet();
  ASSERT_EQ(node(1).commands.size(), 1u);
  EXPECT_FALSE(node(1).commands[0].ok);
  EXPECT_NE(node(1).commands[0].text.find("both split more than 16 epochs ago"), std::string::npos)
      << node(1).commands[0].text;
}

TEST_F(SplitBrainTest, ItOutlivesARestart) {
  part_and_meet();
  end_connection();
  restart(1), restart(2);
  EXPECT_TRUE(split(1) && split(2));
  meet();
  EXPECT_TRUE(split(1) && split(2));
  expect_not_promoted(1, "split brain");
  expect_not_promoted(2, "split brain");
  resolve(1, 2);
  restart(1), restart(2);
  EXPECT_FALSE(split(1) || split(2));
}

// The common part is determined once one of the two is primary. Until then nothing is discarded, and the
// command waits.
TEST_F(SplitBrainTest, NothingIsGivenUpBeforeTheWinnerWasSeen) {
  part_and_meet();
  end_connection();
  demote(1), demote(2);
  Lsn last = status(node(1)).last;
  node(1).commands.clear();
  node(1).step(Discard{5});
  meet();
  EXPECT_TRUE(node(1).commands.empty());
  ASSERT_TRUE(promote(2, true)->ok);
  EXPECT_TRUE(node(1).commands.empty()) << "refused again, and now the split is known";
  EXPECT_EQ(status(node(1)).last, last);
  end_connection();
  meet();
  ASSERT_EQ(node(1).commands.size(), 1u);
  EXPECT_TRUE(node(1).commands[0].ok) << node(1).commands[0].text;
}

TEST_F(SplitBrainTest, WhoHasNothingInCommonIsNotGivenUpForWithoutForce) {
  part_and_meet();
  end_connection();
  demote(1);
  lose_disk(2);
  ASSERT_TRUE(promote(2, true)->ok);
  write_flush(2, 9);
  exchange();
  node(1).commands.clear();
  Lsn last = status(node(1)).last;
  node(1).step(Discard{5});
  meet();
  ASSERT_EQ(node(1).commands.size(), 1u);
  EXPECT_FALSE(node(1).commands[0].ok);
  EXPECT_NE(node(1).commands[0].text.find("--force"), std::string::npos) << node(1).commands[0].text;
  EXPECT_EQ(status(node(1)).last, last);
  EXPECT_TRUE(split(1));
}

// The arbiter has decided whose history counts, and still counts that replica.
TEST_F(SplitBrainTest, WithAnArbiterItsValueDecides) {
  part_and_meet();
  Superblock sb = decode_superblock({node(1).journal.data(), block_size}).value();
  ASSERT_EQ(sb.split_brains.size(), 1u);
  EXPECT_EQ(sb.split_brains[0].with, 2u);
  std::vector<std::byte> journal = node(1).journal, data = node(1).data;
  make(2, Arbiter::external);
  node(1).journal = journal, node(1).data = data;
  restart(1);
  ASSERT_TRUE(split(1));
  EpochValue counts{{sb.epochs.back().epoch.counter, sb.epochs.back().epoch.id}, 1, set_of(1), sb.volume};
  node(1).step(Promote{9});
  answer(1, Outcome::refused, counts);
  answer(1, Outcome::granted);
  EXPECT_EQ(status(node(1)).role, Role::primary);
}

// The side that does not count may have the longer history.
TEST_F(SplitBrainTest, WithAnArbiterALongerHistoryThatDoesNotCountIsNotInTheWay) {
  part_and_meet();
  for (int i = 0; i < 5; ++i) write_flush(2, 9), exchange();
  ASSERT_GT(status(node(2)).commit, status(node(1)).last);
  Superblock sb = decode_superblock({node(1).journal.data(), block_size}).value();
  std::vector<std::byte> journal[2] = {node(1).journal, node(2).journal},
                         data[2] = {node(1).data, node(2).data};
  make(2, Arbiter::external);
  for (ReplicaId id : {1, 2}) {
    node(id).journal = journal[id - 1], node(id).data = data[id - 1];
    restart(id);
  }
  meet();
  EpochValue counts{sb.epochs.back().epoch, 1, set_of(1), sb.volume};
  node(1).step(Promote{9});
  exchange();
  answer(1, Outcome::refused, counts);
  answer(1, Outcome::granted);
  EXPECT_EQ(status(node(1)).role, Role::primary) << status(node(1)).waits_for;
}

// The value is older than the log, so it does not include later acknowledged writes.
TEST_F(SplitBrainTest, AnArbitersValueThatIsOlderThanTheLogSpeaksForNothing) {
  make_promoted(1, 2);
  write_flush(1, 1);
  exchange();
  Epoch newest = status(node(1)).epoch;
  std::vector<std::byte> journal = node(1).journal, data = node(1).data;
  Uuid volume = Shell::volume();
  for (std::uint64_t counter : {newest.counter - 1, newest.counter}) {
    make(2, Arbiter::external);
    node(1).journal = journal, node(1).data = data;
    restart(1);
    node(1).step(Promote{9});
    answer(1, Outcome::refused, EpochValue{{counter, newest.id}, 1, set_of(1) | set_of(2), volume});
    bool older = counter < newest.counter;
    ASSERT_EQ(node(1).commands.size(), older ? 1u : 0u);
    if (!older) continue;
    EXPECT_FALSE(node(1).commands[0].ok);
    EXPECT_NE(node(1).commands[0].text.find("the arbiter was restored from an older copy"), std::string::npos)
        << node(1).commands[0].text;
  }
}

// Neither is the other's primary, because both now follow a third replica.
TEST_F(SplitBrainTest, ItIsOverWhenBothFollowAThirdOne) {
  make_promoted(1, 3, OnPeerLoss::go_on);
  write_flush(1, 1);
  exchange();
  disconnect(1, 2), disconnect(2, 3);
  exchange();
  write_flush(1, 2);
  exchange();
  ASSERT_EQ(status(node(1)).in_sync, set_of(1) | set_of(3));
  ASSERT_TRUE(promote(2, true)->ok);
  write_flush(2, 3);
  exchange();
  connect(1, 2);
  exchange();
  ASSERT_TRUE(status(node(1)).peers[0].split_brain && status(node(2)).peers[0].split_brain);
  disconnect(1, 2);
  exchange();
  node(2).step(Demote{1});
  exchange();
  // Replica 3 becomes primary, and fills replica 2.
  node(1).step(Demote{1});
  exchange();
  ASSERT_TRUE(promote(3, true)->ok);
  connect(2, 3);
  exchange();
  ASSERT_TRUE(status(node(2)).peers[1].split_brain);
  node(2).step(Discard{5});
  disconnect(2, 3);
  connect(2, 3);
  exchange();
  connect(1, 2);
  for (ReplicaId id : {1, 2, 3}) checkpoint(id);
  for (ReplicaId id : {1, 2, 3})
    for (const PeerStatus& p : status(node(id)).peers) EXPECT_FALSE(p.split_brain) << id << " with " << p.id;
  EXPECT_EQ(node(2).data, node(3).data);
}

// ---- settings that differ

struct UnfitTest : RolesTest {
  static constexpr const char*
      why = "replica 2 is configured differently: on_peer_loss is \"continue\" here and \"suspend\" there";
};

// After a start, before any connection: the refusal names the setting.
TEST_F(UnfitTest, APromotionNamesIt) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  node(1).step(Demote{1});
  exchange();
  disconnect(1, 2);
  node(1).step(PeerUnfit{2, why});
  expect_not_promoted(1, why);
  EXPECT_EQ(status(node(1)).peers[0].why, why);
  EXPECT_EQ(status(node(1)).peers[0].connection, ConnectionState::StandAlone);
  std::size_t told = node(1).notices.size();
  node(1).step(PeerUnfit{2, why});
  EXPECT_EQ(node(1).notices.size(), told) << "once";
  connect(1, 2);
  exchange();
  EXPECT_EQ(status(node(1)).peers[0].why, "");
  EXPECT_TRUE(promote(1)->ok);
}

// A different arbiter is worse than another different setting: either replica could be promoted without the
// other.
TEST_F(UnfitTest, WhoHasAnotherArbiterIsInTheWayAlsoWhereItDoesNotCount) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  disconnect(1, 2);
  exchange();
  node(1).step(Demote{1});
  exchange();
  ASSERT_EQ(status(node(1)).in_sync, set_of(1));
  node(1).step(PeerUnfit{2, why, true});
  expect_not_promoted(1, why);
  expect_not_promoted(1, "power replica 2 off first");
  connect(1, 2);
  disconnect(1, 2);
  node(1).step(PeerUnfit{2, why, false});
  EXPECT_TRUE(promote(1)->ok) << "it is behind, and only an operator can promote it";
}

// One file was changed while the other machine cannot be reached. What that machine may do by its own file is
// unknown.
TEST_F(UnfitTest, AnotherArbiterThanAtTheLastPromotionNeedsEverybody) {
  make_promoted(1, 3, OnPeerLoss::go_on);
  for (ReplicaId id : {2, 3}) disconnect(1, id);
  exchange();
  node(1).step(Demote{1});
  exchange();
  ASSERT_EQ(status(node(1)).in_sync, set_of(1));
  node(1).config().arbiter_place = 7;
  restart(1);
  expect_not_promoted(1, "the arbiter has changed since the last promotion");
  connect(1, 2);
  exchange();
  expect_not_promoted(1, "Not reachable: replica 3");
  connect(1, 3);
  exchange();
  ASSERT_TRUE(promote(1)->ok);
  // From then on, the new arbiter decides.
  node(1).step(Demote{1});
  exchange();
  restart(1);
  for (ReplicaId id : {2, 3}) connect(1, id);
  exchange();
  EXPECT_TRUE(promote(1)->ok);
}

// A replica that was filled, or was a secondary, knows the arbiter too.
TEST_F(UnfitTest, AFollowerKnowsTheArbiterOfItsPrimary) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  node(1).step(Demote{1});
  exchange();
  disconnect(1, 2);
  node(2).config().arbiter_place = 7;
  restart(2);
  expect_not_promoted(2, "the arbiter has changed since the last promotion");
}

// The replica did not get the record of the promotion before it comes back with other settings.
TEST_F(UnfitTest, ASuspendedPrimaryStaysSuspended) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  exchange();
  node(1).step(Demote{1});
  exchange();
  lost = [](ReplicaId to, const PeerMessage& m) { return to == 1 && std::holds_alternative<Ack>(m); };
  ASSERT_TRUE(promote(1)->ok);
  disconnect(1, 2);
  lost = nullptr;
  exchange();
  ASSERT_TRUE(status(node(1)).suspended);
  node(1).step(PeerUnfit{2, why});
  write_flush(1, 0);
  exchange();
  EXPECT_TRUE(status(node(1)).suspended);
  EXPECT_EQ(status(node(1)).waits_for, "replica 2 (which is configured differently)");
  node(1).step(Promote{7, true});
  exchange();
  EXPECT_FALSE(status(node(1)).suspended) << "an operator may overrule";
}

TEST(AgreementOfTheCore, HoldsWhatBothSidesPromise) {
  Config c;
  c.peers = {{2, Protocol::C}, {3, Protocol::A}};
  std::string to_2 = agreement_of(c, "manual", 2).text();
  EXPECT_EQ(disagreement(to_2, agreement_of(c, "manual", 3).text()),
            "protocol is \"C\" here and \"A\" there");
  auto differs = [&](auto change, const char* arbiter, std::string_view key) {
    Config other = c;
    change(other);
    std::string told = disagreement(to_2, agreement_of(other, arbiter, 2).text());
    return told.find(key) != std::string::npos;
  };
  EXPECT_TRUE(differs([](Config& o) { o.on_peer_loss = OnPeerLoss::go_on; }, "manual", "on_peer_loss"));
  EXPECT_TRUE(
      differs([](Config& o) { o.min_in_sync = 2; }, "manual", "min_in_sync is \"1\" here and \"2\" there"));
  EXPECT_TRUE(differs([](Config& o) { o.arbiter = Arbiter::external; }, "etcd",
                      "arbiter.kind is \"manual\" here and \"etcd\" there"));
  Config other = c;
  other.seal_after = std::chrono::seconds(1);
  EXPECT_EQ(disagreement(to_2, agreement_of(other, "manual", 2).text()), "") << "each side by itself";
}

}  // namespace
}  // namespace twinloft::repl::core
