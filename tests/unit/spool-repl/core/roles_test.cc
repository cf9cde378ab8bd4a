// Promotion, demotion and membership: three cores, with the test as network, arbiter and operator.
#include <gtest/gtest.h>

#include <cerrno>

#include "roles.h"

namespace twinloft::repl::core {
namespace {

TEST_F(RolesTest, EveryRecordedMemberMustBeHere) {
  make(3);
  connect(1, 2);
  exchange();
  auto refused = promote(1);
  ASSERT_TRUE(refused);
  EXPECT_FALSE(refused->ok);
  EXPECT_NE(refused->text.find("Cannot reach replica 3. If it is still primary"), std::string::npos)
      << refused->text;
  EXPECT_EQ(status(node(1)).waits_for, refused->text);
  connect(1, 3);
  connect(2, 3);
  exchange();
  auto ok = promote(1);
  ASSERT_TRUE(ok && ok->ok) << (ok ? ok->text : "no answer");
  EXPECT_EQ(status(node(1)).role, Role::primary);
  auto f = write_flush(1, 0);
  exchange();
  EXPECT_EQ(node(1).done.at(f), 0);
  EXPECT_EQ(status(node(3)).last, status(node(1)).last);
  auto beside = promote(2);
  ASSERT_TRUE(beside && !beside->ok);
  EXPECT_NE(beside->text.find("replica 1 is Primary"), std::string::npos);
}

// The operator removed a failed replica from the configuration, but the log still counts it.
TEST_F(RolesTest, AMemberThatIsNotConfiguredCanNotBeForgotten) {
  make_promoted(1, 2);
  write_flush(1, 0);
  exchange();
  Shell& one = node(1);
  std::vector<std::byte> journal = one.journal, data = one.data;
  Config alone;
  alone.send_window_bytes = 4u << 20;
  nodes[0] = std::make_unique<Shell>(ShellOptions{.replica = 1, .config = alone});
  node(1).journal = std::move(journal);
  node(1).data = std::move(data);
  restart(1);
  up.clear();
  auto refused = promote(1);
  ASSERT_TRUE(refused && !refused->ok);
  EXPECT_NE(refused->text.find("replica 2, which is not in this configuration"), std::string::npos)
      << refused->text;
  ASSERT_TRUE(promote(1, true)->ok);
  auto f = write_flush(1, 1);
  exchange();
  EXPECT_EQ(node(1).done.at(f), 0);
  EXPECT_EQ(status(node(1)).in_sync, set_of(1));
}

TEST_F(RolesTest, OfTwoClaimsTheLowerIdWins) {
  make(2);
  connect_all();
  exchange();
  node(1).step(Promote{1, false});
  node(2).step(Promote{2, false});
  exchange();
  EXPECT_EQ(status(node(1)).role, Role::primary);
  EXPECT_EQ(status(node(2)).role, Role::secondary);
  ASSERT_EQ(node(2).commands.size(), 1u);
  EXPECT_FALSE(node(2).commands[0].ok);
}

TEST_F(RolesTest, APromiseEndsWithTheLinkAndWithTheClaim) {
  make(3);
  connect_all();
  exchange();
  node(1).step(Promote{1, false});
  // Replica 2 grants the claim of replica 1, then replica 1 is lost.
  for (std::size_t i = delivered[0]; i < node(1).sent.size(); ++i)
    if (node(1).sent_to[i] == 2) node(2).input(1, node(1).sent[i]);
  delivered[0] = node(1).sent.size();
  auto busy = promote(2);
  ASSERT_TRUE(busy && !busy->ok);
  EXPECT_NE(busy->text.find("replica 1 is being promoted"), std::string::npos) << busy->text;
  disconnect(1, 2);
  disconnect(1, 3);
  connect(1, 2);
  connect(1, 3);
  exchange();
  auto ok = promote(2);
  EXPECT_TRUE(ok && ok->ok) << (ok ? ok->text : "no answer");
}

TEST_F(RolesTest, ADemotionBringsEverythingAlong) {
  make_promoted(1, 2);
  node(1).held = [](Disk kind) { return kind == Disk::journal_write; };
  auto w = node(1).submit(ClientOp::write, 5 * block_size, block_size, in.data());
  exchange();
  ASSERT_EQ(node(1).done.at(w), 0) << "complete in memory";
  node(1).step(Demote{9});
  exchange();
  EXPECT_EQ(status(node(1)).role, Role::primary) << "not before it is durable";
  EXPECT_TRUE(node(1).commands.size() == 1);
  node(1).held = nullptr;
  exchange();
  EXPECT_EQ(status(node(1)).role, Role::secondary);
  ASSERT_EQ(node(1).commands.size(), 2u);
  EXPECT_TRUE(node(1).commands[1].ok);
  EXPECT_FALSE(node(1).role_changes.back().lost);
  ASSERT_TRUE(promote(2)->ok);
  std::vector<std::byte> out(block_size);
  auto r = node(2).submit(ClientOp::read, 5 * block_size, block_size, out.data());
  exchange();
  EXPECT_EQ(node(2).done.at(r), 0);
  EXPECT_EQ(out, in);
}

// ---- continuing without a member

TEST_F(RolesTest, GoingOnAloneIsARecordBeforeItIsAnAcknowledgement) {
  make(2, Arbiter::manual, OnPeerLoss::go_on);
  connect_all();
  exchange();
  promote(1);
  auto f = write_flush(1, 0);
  node(2).held = [](Disk kind) { return kind == Disk::journal_write; };
  exchange();
  ASSERT_FALSE(node(1).is_done(f));
  node(1).held = [](Disk kind) { return kind == Disk::journal_write; };
  disconnect(1, 2);
  EXPECT_EQ(status(node(1)).in_sync, set_of(1));
  EXPECT_FALSE(node(1).is_done(f)) << "the epoch without replica 2 is not durable";
  node(1).held = nullptr;
  exchange();
  EXPECT_EQ(node(1).done.at(f), 0);
  // The member comes back, is included in every acknowledgement, and then is a member again.
  node(2).held = nullptr;
  connect(1, 2);
  exchange();
  EXPECT_EQ(status(node(1)).in_sync, set_of(1) | set_of(2));
  EXPECT_EQ(status(node(2)).in_sync, set_of(1) | set_of(2));
}

// Replica 3 catches up and has every record that it needs. Replica 2 is lost meanwhile. Suppose replica 3
// became a member before it has the epoch without replica 2. If promoted, it would continue from an epoch
// with replica 2 and without itself. Replica 2's tail would then look like a split brain.
TEST_F(RolesTest, WhoJoinsHasTheRecordOfTheEpochThatItJoins) {
  make_promoted(1, 3, OnPeerLoss::go_on);
  disconnect(1, 3);
  fill(1, 0, 4, 2);
  ASSERT_EQ(status(node(1)).in_sync, set_of(1) | set_of(2));
  node(3).held = [](Disk kind) { return kind == Disk::journal_write; };
  connect(1, 3);
  exchange();
  lost = [](ReplicaId to, const PeerMessage& m) {
    return to == 3 && std::holds_alternative<RecordMessage>(m);
  };
  disconnect(1, 2);
  exchange();
  node(3).held = nullptr;
  exchange();
  EXPECT_EQ(status(node(1)).in_sync, set_of(1));
  lost = nullptr;
  disconnect(1, 3);
  connect(1, 3);
  exchange();
  EXPECT_EQ(status(node(1)).in_sync, set_of(1) | set_of(3));
}

// If the record rots, the superblock still has the epoch. The primary stores it there before the first
// acknowledgement in the epoch, the other replicas before they acknowledge the record.
TEST_F(RolesTest, AnEpochCountsWhenTheSuperblockKnowsIt) {
  for (ReplicaId slow : {1, 2}) {
    make(2);
    connect_all();
    exchange();
    node(slow).held = [](Disk kind) { return kind == Disk::superblock; };
    ASSERT_TRUE(promote(1)->ok);
    auto flushed = write_flush(1, 0);
    exchange();
    EXPECT_GE(status(node(slow)).last, Lsn{1});
    EXPECT_EQ(status(node(slow)).durable, Lsn{0});
    EXPECT_EQ(status(node(1)).commit, Lsn{0});
    EXPECT_FALSE(node(1).done.contains(flushed));
    node(slow).held = nullptr;
    exchange();
    EXPECT_TRUE(node(1).done.contains(flushed));
    auto sb = decode_superblock({node(slow).journal.data() + superblock_offset[0], block_size});
    ASSERT_TRUE(sb);
    EXPECT_EQ(sb->epochs.size(), 1u);
  }
}

// Replica 1 continued alone once. It has lost the later record that counts replica 2, so it would be promoted
// alone again. Replica 2 must not continue without replica 1 before replica 1 knows better.
TEST_F(RolesTest, WhoMayBelieveToBeAloneIsNotLeftOut) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  disconnect(1, 2);
  exchange();
  ASSERT_EQ(status(node(1)).in_sync, set_of(1));
  connect(1, 2);
  exchange([&] { return status(node(1)).in_sync != set_of(1); });
  node(1).held = [](Disk kind) { return kind == Disk::journal_write; };
  exchange();
  restart(1);
  connect(1, 2);
  exchange();
  ASSERT_TRUE(promote(2)->ok);
  disconnect(1, 2);
  auto alone = write_flush(2, 7);
  exchange();
  EXPECT_FALSE(node(2).is_done(alone));
  EXPECT_EQ(status(node(2)).in_sync, set_of(1) | set_of(2));
  EXPECT_NE(status(node(2)).waits_for.find("replica 1 (which has not confirmed this promotion yet)"),
            std::string::npos)
      << status(node(2)).waits_for;

  node(1).held = nullptr;
  connect(1, 2);
  exchange();
  EXPECT_EQ(node(2).done.at(alone), 0);
  disconnect(1, 2);
  alone = write_flush(2, 8);
  exchange();
  EXPECT_EQ(node(2).done.at(alone), 0) << "now it does";
  expect_not_promoted(1, "Cannot reach replica 2.");
}

TEST_F(RolesTest, SuspendMeansSuspend) {
  make_promoted(1, 2);
  disconnect(1, 2);
  auto w = node(1).submit(ClientOp::write, 0, block_size, in.data());
  exchange();
  node(1).pass_time(std::chrono::minutes(10));
  EXPECT_FALSE(node(1).is_done(w));
  EXPECT_TRUE(status(node(1)).suspended);
  EXPECT_EQ(status(node(1)).waits_for, "replica 2");
  node(1).step(Promote{3, true});  // the operator knows that the replica is down
  exchange();
  EXPECT_EQ(node(1).done.at(w), 0);
  EXPECT_EQ(status(node(1)).in_sync, set_of(1));
}

TEST_F(RolesTest, ASuspensionEndsInErrorsWhereThatIsWanted) {
  make(2);
  Config c;
  c.send_window_bytes = 4u << 20;
  c.peers = {{2, Protocol::C}};
  c.suspend_timeout = std::chrono::seconds(30);
  nodes[0] = std::make_unique<Shell>(ShellOptions{.replica = 1, .config = c});
  connect_all();
  exchange();
  promote(1);
  disconnect(1, 2);
  node(1).pass_time(std::chrono::minutes(5));
  EXPECT_FALSE(status(node(1)).failed) << "no request waits";
  auto w = node(1).submit(ClientOp::write, 0, block_size, in.data());
  node(1).pass_time(std::chrono::seconds(29));
  EXPECT_FALSE(node(1).is_done(w));
  node(1).pass_time(std::chrono::seconds(2));
  EXPECT_EQ(node(1).done.at(w), EIO);
  auto f = node(1).submit(ClientOp::flush);
  EXPECT_EQ(node(1).done.at(f), EIO);
  EXPECT_TRUE(status(node(1)).failed);
}

// The operator's force covers the present loss only, not the next one. It is stored in the log.
TEST_F(RolesTest, ForceOnAPrimaryIsForThisSuspensionOnly) {
  make_promoted(1, 2);
  node(1).step(Promote{5, true});
  exchange();
  EXPECT_EQ(node(1).commands.back().text, "already Primary");
  disconnect(1, 2);
  auto waiting = node(1).submit(ClientOp::write, 0, block_size, in.data());
  exchange();
  EXPECT_FALSE(node(1).done.contains(waiting));
  EXPECT_TRUE(status(node(1)).suspended);
  node(1).step(Promote{6, true});
  exchange();
  EXPECT_TRUE(node(1).done.contains(waiting));
  node(1).step(PeerUp{2});
  auto& told = std::get<NodeState>(*(node(1).sent.rbegin() + 1));
  EXPECT_EQ(told.epoch.in_sync, set_of(1));
  EXPECT_TRUE(told.epoch.flags & epoch_by_force);
}

struct FirstPromotionTest : RolesTest {
  // Replica 2 of a new volume. In replica 1's configuration, the link to 2 makes 2 no member.
  void make_follower(std::size_t count, Arbiter arbiter, Protocol protocol) {
    make(count, arbiter);
    Config c = config_of(2, count);
    c.arbiter = arbiter;
    c.peers[0].protocol = protocol;
    nodes[1] = std::make_unique<Shell>(ShellOptions{.replica = 2, .config = c, .seed = 7});
  }
  void expect_refused(Arbiter arbiter) {
    node(2).step(Promote{5, false});
    exchange();
    if (arbiter == Arbiter::external) answer(2, Outcome::granted);  // the arbiter has no value yet
    ASSERT_FALSE(node(2).commands.empty());
    EXPECT_FALSE(node(2).commands.back().ok);
    EXPECT_NE(node(2).commands.back().text.find(arbiter == Arbiter::external ? "Not reachable: replica 1"
                                                                             : "Cannot reach replica 1"),
              std::string::npos)
        << node(2).commands.back().text;
    EXPECT_EQ(status(node(2)).role, Role::secondary);
  }
};

// Its own configuration does not make it a member. The replicas that it follows may hold the volume.
TEST_F(FirstPromotionTest, AnEmptyReplicaThatOnlyFollowsIsNotPromotedAlone) {
  for (Arbiter arbiter : {Arbiter::manual, Arbiter::external}) {
    make_follower(2, arbiter, Protocol::A);
    expect_refused(arbiter);
    if (arbiter == Arbiter::external) continue;
    connect(1, 2);
    exchange();
    EXPECT_TRUE(promote(2)->ok);
  }
}

// Its members are connected and empty. The replica that it only follows has adopted a volume.
TEST_F(FirstPromotionTest, NeedsThoseToWhomTheLinkIsNoMembersToo) {
  for (Arbiter arbiter : {Arbiter::manual, Arbiter::external}) {
    make_follower(3, arbiter, Protocol::B);
    connect(2, 3);
    exchange();
    expect_refused(arbiter);
  }
}

// It has a prefix of the acknowledged writes, of unknown length.
TEST_F(RolesTest, AFollowerIsPromotedByForceOnlyAndSaysWhatMayBeMissing) {
  for (Protocol protocol : {Protocol::A, Protocol::B}) {
    make(2);
    for (ReplicaId id : {1, 2}) {
      Config c = config_of(id, 2);
      c.peers[0].protocol = id == 1 ? protocol : Protocol::C;
      nodes[id - 1] = std::make_unique<Shell>(ShellOptions{.replica = id, .config = c, .seed = id});
    }
    connect(1, 2);
    exchange();
    ASSERT_TRUE(promote(1)->ok);
    write_flush(1, 0);
    exchange();
    ASSERT_EQ(status(node(2)).last, status(node(1)).last);
    disconnect(1, 2);
    expect_not_promoted(2,
                        "replica 2 is not in sync: epoch 1 continued on replica 1, which may have "
                        "acknowledged writes that are missing here");
    auto forced = promote(2, true);
    ASSERT_TRUE(forced && forced->ok);
    EXPECT_NE(forced->text.find("DATA MAY BE MISSING HERE: epoch 1 continued on replica "
                                "1, without this replica. Writes acknowledged after LSN"),
              std::string::npos)
        << forced->text;
  }
}

TEST_F(RolesTest, FewerThanMinInSyncAreNotEnough) {
  make(3, Arbiter::manual, OnPeerLoss::go_on, 2);
  connect_all();
  exchange();
  promote(1);
  disconnect(1, 3);
  auto f = write_flush(1, 0);
  exchange();
  EXPECT_EQ(node(1).done.at(f), 0);
  disconnect(1, 2);
  auto w = node(1).submit(ClientOp::write, 0, block_size, in.data());
  exchange();
  EXPECT_FALSE(node(1).is_done(w));
  EXPECT_EQ(status(node(1)).in_sync, set_of(1) | set_of(2));
}

TEST_F(RolesTest, WhoWasLeftBehindIsNotPromoted) {
  make(3, Arbiter::manual, OnPeerLoss::go_on);
  connect_all();
  exchange();
  promote(1);
  disconnect(1, 3);
  disconnect(2, 3);
  write_flush(1, 0);
  exchange();
  ASSERT_EQ(status(node(1)).in_sync, set_of(1) | set_of(2));
  node(1).step(Demote{1});
  exchange();
  connect(2, 3);
  connect(1, 3);
  exchange();
  auto refused = promote(3);
  ASSERT_TRUE(refused && !refused->ok);
  EXPECT_NE(refused->text.find("replica 3 is not in sync"), std::string::npos) << refused->text;
  ASSERT_TRUE(promote(2)->ok);
  EXPECT_EQ(status(node(3)).last, status(node(2)).last) << "it catches up";
}

// ---- an arbiter

TEST_F(RolesTest, TheArbiterIsReadAndSwapped) {
  make(2, Arbiter::external);
  connect_all();
  exchange();
  node(1).step(Promote{1, false});
  exchange();
  ASSERT_EQ(node(1).arbiter_requests.size(), 1u);
  EXPECT_TRUE(node(1).arbiter_requests[0].read);
  answer(1, Outcome::granted);
  ASSERT_EQ(node(1).arbiter_requests.size(), 2u);
  EpochValue desired = node(1).arbiter_requests[1].desired;
  EXPECT_EQ(node(1).arbiter_requests[1].expected, std::nullopt);
  EXPECT_EQ(desired.in_sync, set_of(1) | set_of(2));
  answer(1, Outcome::unknown);
  EXPECT_EQ(status(node(1)).role, Role::secondary);
  node(1).pass_time(std::chrono::seconds(2));
  ASSERT_EQ(node(1).arbiter_requests.size(), 3u);
  EXPECT_EQ(node(1).arbiter_requests[2].desired, desired) << "the same attempt";
  answer(1, Outcome::refused, desired);  // it had been applied at the first attempt
  EXPECT_EQ(status(node(1)).role, Role::primary);
  EXPECT_EQ(status(node(1)).epoch, desired.epoch);
}

TEST_F(RolesTest, NobodyGoesOnBeforeTheArbiterHasSaidSo) {
  make(2, Arbiter::external);
  connect_all();
  exchange();
  node(1).step(Promote{1, false});
  exchange();
  answer(1, Outcome::granted);
  answer(1, Outcome::granted);
  ASSERT_EQ(status(node(1)).role, Role::primary);
  disconnect(1, 2);
  auto w = node(1).submit(ClientOp::write, 0, block_size, in.data());
  exchange();
  ASSERT_EQ(node(1).arbiter_requests.size(), 3u);
  answer(1, Outcome::unknown);
  node(1).pass_time(std::chrono::seconds(2));
  EXPECT_FALSE(node(1).is_done(w)) << "a lost answer does not count as success";
  ASSERT_EQ(node(1).arbiter_requests.size(), 4u);
  EXPECT_EQ(node(1).arbiter_requests[3].desired, node(1).arbiter_requests[2].desired);
  answer(1, Outcome::granted);
  EXPECT_EQ(node(1).done.at(w), 0);
  EXPECT_EQ(status(node(1)).in_sync, set_of(1));
}

TEST_F(RolesTest, ADeposedPrimaryFailsItsDevice) {
  make(2, Arbiter::external);
  connect_all();
  exchange();
  node(1).step(Promote{1, false});
  exchange();
  answer(1, Outcome::granted);
  answer(1, Outcome::granted);
  auto f = write_flush(1, 0);
  disconnect(1, 2);
  exchange();
  SeededRandom random(5);
  EpochValue others{{9, Uuid::generate(random)}, 2, set_of(1) | set_of(2), Uuid::generate(random)};
  answer(1, Outcome::refused, others);
  EXPECT_EQ(node(1).done.at(f), EIO);
  EXPECT_EQ(status(node(1)).role, Role::secondary);
  EXPECT_TRUE(node(1).role_changes.back().lost);
  auto later = node(1).submit(ClientOp::flush);
  exchange();
  EXPECT_NE(node(1).done.at(later), 0);
}

TEST_F(RolesTest, NoticesSayWhatHappened) {
  using K = NoticeKind;
  make_promoted(1, 2);
  write_flush(1, 0);
  exchange();
  EXPECT_EQ(node(1).notice_kinds, (std::vector{K::role, K::connected}));
  EXPECT_EQ(node(2).notice_kinds, (std::vector{K::connected}));

  // A connection that comes back at once does not suspend requests long enough to be reported.
  disconnect(1, 2);
  node(1).pass_time(std::chrono::milliseconds(100));
  connect(1, 2);
  exchange();
  node(1).pass_time(std::chrono::seconds(5));
  EXPECT_EQ(node(1).notice_kinds, (std::vector{K::role, K::connected, K::disconnected, K::connected}));

  node(1).notice_kinds.clear();
  disconnect(1, 2);
  node(1).pass_time(Duration(1));
  ASSERT_TRUE(node(1).core->next_tick());
  node(1).pass_time(std::chrono::seconds(1));
  node(1).pass_time(std::chrono::seconds(1));
  EXPECT_EQ(node(1).notice_kinds, (std::vector{K::disconnected, K::suspended}));
  EXPECT_EQ(node(1).notices.back(), "suspended: writes wait for replica 2");
  connect(1, 2);
  exchange();
  EXPECT_EQ(node(1).notice_kinds, (std::vector{K::disconnected, K::suspended, K::connected, K::resumed}));

  node(1).step(Demote{5});
  exchange();
  EXPECT_EQ(node(1).notice_kinds.back(), K::role);
  EXPECT_EQ(node(1).notices.back(), "replica 1 is Secondary");
}

TEST_F(RolesTest, NoticesOfAMemberThatIsLeftOutAndComesBack) {
  using K = NoticeKind;
  make(2, Arbiter::manual, OnPeerLoss::go_on);
  connect_all();
  exchange();
  promote(1);
  exchange();
  node(1).notice_kinds.clear();
  disconnect(1, 2);
  exchange();
  EXPECT_EQ(node(1).notice_kinds, (std::vector{K::disconnected, K::member_removed}));
  connect(1, 2);
  exchange();
  EXPECT_EQ(node(1).notice_kinds,
            (std::vector{K::disconnected, K::member_removed, K::connected, K::member_added}));
}

}  // namespace
}  // namespace twinloft::repl::core
