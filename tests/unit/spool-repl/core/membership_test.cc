// Which replicas must have a record, and how the set changes: Term and Membership, without requests and
// connections.
#include "primary_parts.h"

namespace twinloft::repl::core {
namespace {

using Outcome = ArbiterAnswer::Outcome;

struct MembershipTest : testing::Test {
  const ReplicaSet all = set_of(1) | set_of(2) | set_of(3);

  void make(Config config) {
    parts = std::make_unique<PrimaryParts>(std::move(config));
    membership = std::make_unique<Membership>(parts->volume, parts->checkpointer, parts->peers, parts->term,
                                              requests);
  }
  // Epoch 1 with these members, all connected and with its record.
  void start(ReplicaSet set, std::optional<EpochValue> value = std::nullopt) {
    membership->take_office(set, std::move(value));
    membership->begin_epoch({1, Uuid::generate(parts->random)}, set, {});
    parts->make_durable();
    for (Peer& p : parts->peers) {
      parts->stream(p.id());
      if (set & set_of(p.id())) parts->ack(p.id());
    }
    membership->consider_change();
    check();
  }
  EpochValue held(ReplicaSet set) {
    return {{1, Uuid::generate(parts->random)}, 1, set, Uuid::generate(parts->random), false};
  }
  // Replicas 1 and 2 with an arbiter. Returns the arbiter's value.
  EpochValue start_with_an_arbiter() {
    Config c = with_peers({2});
    c.arbiter = Arbiter::external;
    make(c);
    EpochValue value = held(set_of(1) | set_of(2));
    start(set_of(1) | set_of(2), value);
    return value;
  }
  void answer(Outcome outcome, std::optional<EpochValue> current = std::nullopt) {
    membership->on_arbiter({parts->volume.out.arbiter_requests.back().token, outcome, current, ""});
  }
  void check() {
    term().check_invariants();
    membership->check_invariants();
  }
  Term& term() { return parts->term; }
  Output& out() { return parts->volume.out; }

  FakeRequests requests;
  std::unique_ptr<PrimaryParts> parts;
  std::unique_ptr<Membership> membership;
};

TEST_F(MembershipTest, WhoCountedBeforeIsRequiredUntilTheNewRecordIsDurableOnItsOwnSet) {
  Config c = with_peers({2, 3});
  c.on_peer_loss = OnPeerLoss::go_on;
  make(c);
  start(all);
  EXPECT_EQ(term().counted(), all);
  EXPECT_FALSE(term().suspended());

  parts->peer(3).disconnect();
  EXPECT_TRUE(term().suspended());
  membership->consider_change();  // the manual arbiter grants at once
  check();
  EXPECT_EQ(term().in_sync(), set_of(1) | set_of(2));
  EXPECT_EQ(term().epoch().counter, 2u);
  EXPECT_TRUE(term().required(parts->peer(3))) << "the record without it is not durable yet";
  EXPECT_TRUE(term().suspended());

  parts->make_durable();
  membership->consider_change();
  EXPECT_TRUE(term().required(parts->peer(3))) << "the record is durable here only";
  parts->ack(2);
  membership->consider_change();
  EXPECT_FALSE(term().required(parts->peer(3)));
  EXPECT_FALSE(term().suspended());
  EXPECT_EQ(parts->notices(NoticeKind::member_removed), 1u);
}

TEST_F(MembershipTest, ByDefaultAMemberThatIsAwayIsWaitedForUntilForceIsUsed) {
  make(with_peers({2}));
  start(set_of(1) | set_of(2));
  EXPECT_FALSE(membership->go_on_alone()) << "no member is away";
  parts->peer(2).disconnect();
  membership->consider_change();
  EXPECT_EQ(term().epoch().counter, 1u);
  EXPECT_TRUE(membership->go_on_alone());
  membership->consider_change();
  EXPECT_EQ(term().in_sync(), set_of(1));
  EXPECT_TRUE(term().flags() & epoch_by_force);
  check();
}

TEST_F(MembershipTest, AReplicaCountsInAcknowledgementsBeforeItIsRecorded) {
  make(with_peers({2}));
  start(set_of(1));
  EXPECT_TRUE(term().required(parts->peer(2)));
  EXPECT_EQ(term().in_sync(), set_of(1));
  EXPECT_TRUE(parts->peer(2).adding);
  EXPECT_EQ(term().committable_end(), parts->volume.log.committed_end())
      << "records that it lacks are not committed";
  parts->ack(2);
  membership->consider_change();
  EXPECT_EQ(term().in_sync(), set_of(1) | set_of(2));
  EXPECT_FALSE(parts->peer(2).adding);
  EXPECT_EQ(parts->notices(NoticeKind::member_added), 1u);
  check();
}

TEST_F(MembershipTest, AReplicaThatIsBeingFilledIsNotAdded) {
  make(with_peers({2}));
  membership->take_office(set_of(1), std::nullopt);
  membership->begin_epoch({1, Uuid::generate(parts->random)}, set_of(1), {});
  parts->make_durable();
  parts->stream(2);
  parts->ack(2);
  parts->peer(2).incomplete = true;
  membership->consider_change();
  EXPECT_FALSE(term().required(parts->peer(2)));
  EXPECT_EQ(term().epoch().counter, 1u);
}

TEST_F(MembershipTest, MinInSyncKeepsTheLastMembers) {
  Config c = with_peers({2});
  c.on_peer_loss = OnPeerLoss::go_on;
  c.min_in_sync = 2;
  make(c);
  start(set_of(1) | set_of(2));
  parts->peer(2).disconnect();
  membership->consider_change();
  EXPECT_EQ(term().epoch().counter, 1u);
  EXPECT_TRUE(term().suspended());
  EXPECT_EQ(membership->waits_for(), "replica 2");
}

TEST_F(MembershipTest, AfterAnUnknownOutcomeTheSameChangeIsAskedForAgain) {
  start_with_an_arbiter();
  parts->peer(2).disconnect();
  membership->consider_change();
  ASSERT_EQ(out().arbiter_requests.size(), 1u);
  EXPECT_EQ(term().epoch().counter, 1u) << "nothing changes before the grant";
  answer(Outcome::unknown);
  check();
  EXPECT_EQ(membership->next_tick(), parts->volume.now + parts->volume.config.arbiter_retry);
  membership->consider_change();
  EXPECT_EQ(out().arbiter_requests.size(), 1u);
  parts->volume.now = parts->volume.now + parts->volume.config.arbiter_retry;
  membership->consider_change();
  ASSERT_EQ(out().arbiter_requests.size(), 2u);
  EXPECT_EQ(out().arbiter_requests[0].desired, out().arbiter_requests[1].desired);
  // The first request did reach the arbiter.
  answer(Outcome::refused, out().arbiter_requests[0].desired);
  EXPECT_EQ(term().in_sync(), set_of(1));
  check();
}

TEST_F(MembershipTest, AnAnswerThatNamesAnotherWriterEndsThisPrimary) {
  start_with_an_arbiter();
  parts->peer(2).disconnect();
  membership->consider_change();
  EpochValue other = held(set_of(2));
  other.writer = 2;
  answer(Outcome::refused, other);
  EXPECT_TRUE(term().lost());
  EXPECT_EQ(parts->notices(NoticeKind::role), 1u);
  EXPECT_EQ(term().epoch().counter, 1u);
}

TEST_F(MembershipTest, AnEpochThatNobodyKnowsIsOutdoneByAManualPrimaryOnly) {
  make(with_peers({2}));
  start(set_of(1) | set_of(2));
  EXPECT_TRUE(membership->begin_epoch_behind(8));
  EXPECT_EQ(term().epoch().counter, 9u);
  EpochValue value = start_with_an_arbiter();
  EXPECT_FALSE(membership->begin_epoch_behind(8));
  membership->ask_whether_granted(8);
  membership->ask_whether_granted(8);
  ASSERT_EQ(out().arbiter_requests.size(), 1u) << "one request at a time";
  EXPECT_TRUE(out().arbiter_requests[0].read);
  answer(Outcome::granted, value);
  ASSERT_EQ(out().arbiter_requests.size(), 2u);
  EXPECT_EQ(out().arbiter_requests[1].desired.epoch.counter, 9u);
}

TEST_F(MembershipTest, AChangeThatIsDueWhileTheArbiterIsAskedAnswersTheDoubtToo) {
  EpochValue value = start_with_an_arbiter();
  membership->ask_whether_granted(8);
  parts->peer(2).disconnect();
  membership->consider_change();
  check();
  ASSERT_EQ(out().arbiter_requests.size(), 2u);
  EXPECT_FALSE(out().arbiter_requests[1].read);
  EXPECT_EQ(out().arbiter_requests[1].desired.in_sync, set_of(1));
  membership->on_arbiter({out().arbiter_requests[0].token, Outcome::granted, value, ""});
  EXPECT_EQ(out().arbiter_requests.size(), 2u) << "no one waits for the first answer any more";
  answer(Outcome::granted);
  EXPECT_EQ(term().in_sync(), set_of(1));
  check();
}

// The new primary holds that epoch. With a higher epoch here, it would yield to a replica that serves no
// client.
TEST_F(MembershipTest, ALostPrimaryOutdoesNoEpoch) {
  make(with_peers({2, 3}));
  start(all);
  membership->lose("replica 2 is primary");
  EXPECT_FALSE(membership->begin_epoch_behind(8));
  EXPECT_EQ(term().epoch().counter, 1u);
}

TEST_F(MembershipTest, ASuspensionIsToldOnceAndFailsTheDeviceOnlyWhereSomebodyWaits) {
  Config c = with_peers({2});
  c.suspend_timeout = std::chrono::seconds(10);
  make(c);
  start(set_of(1) | set_of(2));
  parts->peer(2).disconnect();
  auto pass = [&](Duration d) {
    parts->volume.now = parts->volume.now + d;
    membership->bound_suspension();
    membership->tell_suspension();
  };
  pass(Duration(0));
  EXPECT_EQ(parts->notices(NoticeKind::suspended), 0u)
      << "a connection that comes back at once is not reported";
  for (int i = 0; i < 30; ++i) pass(std::chrono::seconds(1));
  EXPECT_EQ(parts->notices(NoticeKind::suspended), 1u);
  EXPECT_FALSE(parts->volume.failed);
  requests.waits = true;
  pass(Duration(0));
  pass(std::chrono::seconds(9));
  EXPECT_FALSE(parts->volume.failed);
  pass(std::chrono::seconds(1));
  EXPECT_TRUE(parts->volume.failed);
}

using MembershipDeathTest = MembershipTest;
TEST_F(MembershipDeathTest, AnEpochIsNewerAndCountsItsWriter) {
  make(with_peers({2}));
  start(set_of(1) | set_of(2));
  EXPECT_DEATH(membership->begin_epoch({1, Uuid::generate(parts->random)}, set_of(1), {}), "counter");
  EXPECT_DEATH(membership->begin_epoch({2, Uuid::generate(parts->random)}, set_of(2), {}), "replica");
}

}  // namespace
}  // namespace twinloft::repl::core
