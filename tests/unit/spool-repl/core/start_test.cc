// A start: a replica that is to be primary first asks the replicas that it can reach, whatever its own log
// says.
#include "roles.h"

namespace twinloft::repl::core {
namespace {

struct StartTest : RolesTest {
  Duration look = Config().ask_peers_for;
  void SetUp() override { ask_peers_for = look; }

  // Both continued alone by force, replica 2 last. Replica 1 is down, and its log counts only itself.
  void make_parted() {
    make_promoted(1, 2);
    write_flush(1, 0);
    exchange();
    disconnect(1, 2);
    node(1).step(Promote{5, true});
    write_flush(1, 1);
    exchange();
    ASSERT_EQ(status(node(1)).in_sync, set_of(1));
    node(2).pass_time(look);
    ASSERT_TRUE(promote(2, true)->ok);
    write_flush(2, 2);
    exchange();
    restart(1);
  }
};

TEST_F(StartTest, WhoWasAloneIsNotPromotedBesideOneThatItCanReach) {
  make_parted();
  node(1).step(Promote{0, false});
  exchange();
  EXPECT_EQ(status(node(1)).role, Role::secondary) << "no replica was asked";
  node(1).pass_time(look / 2);
  connect(1, 2);
  exchange();
  node(1).pass_time(2 * look);
  exchange();
  EXPECT_EQ(status(node(1)).role, Role::secondary);
  EXPECT_EQ(status(node(2)).role, Role::primary);
  EXPECT_EQ(status(node(1)).waits_for, "replica 2 is Primary");
  for (int i = 0; i < 3; ++i) {
    node(1).step(Promote{0, false});
    exchange();
    node(1).pass_time(std::chrono::seconds(1));
  }
  EXPECT_EQ(status(node(1)).role, Role::secondary);
}

TEST_F(StartTest, ForceAsksFirstToo) {
  make_parted();
  node(1).commands.clear();
  node(1).step(Promote{6, true});
  exchange();
  EXPECT_TRUE(node(1).commands.empty());
  connect(1, 2);
  exchange();
  ASSERT_EQ(node(1).commands.size(), 1u);
  EXPECT_FALSE(node(1).commands[0].ok);
  EXPECT_EQ(status(node(1)).role, Role::secondary);
}

TEST_F(StartTest, WhoWasAloneIsPromotedWhereNobodyTurnsUp) {
  make_parted();
  node(1).step(Promote{0, false});
  exchange();
  auto next = node(1).core->next_tick();
  ASSERT_TRUE(next);
  EXPECT_LE(next->ns, (node(1).now() + look).ns);
  node(1).pass_time(look);
  exchange();
  EXPECT_EQ(status(node(1)).role, Role::primary);
}

// Long after the start, every reachable replica is connected.
TEST_F(StartTest, LaterNobodyIsWaitedFor) {
  make_parted();
  node(1).commands.clear();
  node(1).pass_time(look);
  node(1).step(Promote{7, false});
  exchange();
  ASSERT_EQ(node(1).commands.size(), 1u);
  EXPECT_TRUE(node(1).commands[0].ok) << node(1).commands[0].text;
}

// A replica that connects during the promotion is asked like the others.
TEST_F(StartTest, ANewcomerIsAskedBeforeItIsGranted) {
  make_parted();
  node(2).step(Demote{8});
  exchange();
  ASSERT_EQ(status(node(2)).role, Role::secondary);
  node(1).step(Promote{0, false});
  exchange();
  connect(1, 2);
  exchange();
  EXPECT_EQ(status(node(1)).role, Role::secondary) << "the other replica served without it";
  EXPECT_NE(status(node(1)).waits_for.find("replicas 1 and 2"), std::string::npos)
      << status(node(1)).waits_for;
}

// Found by the simulator: the only member has lost its disk, and the other replica has followed it without
// being a member.
TEST_F(RolesTest, AnEmptyMemberIsNotPromotedBesideOneThatHasSomething) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  disconnect(1, 2);
  write_flush(1, 1);
  exchange();
  lost = [](ReplicaId to, const PeerMessage& m) { return to == 1 && std::holds_alternative<Ack>(m); };
  connect(1, 2);
  exchange();
  lost = nullptr;
  disconnect(1, 2);
  ASSERT_EQ(status(node(2)).in_sync, set_of(1));
  lose_disk(1);
  connect(1, 2);
  exchange();
  expect_not_promoted(1, "replica 1 is empty, and replica 2 is not");
}

}  // namespace
}  // namespace twinloft::repl::core
