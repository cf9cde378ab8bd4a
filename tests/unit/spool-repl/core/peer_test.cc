// The states of a peer's connection: what each transition keeps and ends.
#include "primary_parts.h"

namespace twinloft::repl::core {
namespace {

struct PeerTest : testing::Test {
  Peer peer{{2, Protocol::C}};
  Epoch epoch{7, {}};

  void match() {
    peer.connect(epoch);
    peer.in<Peer::Matching>()->answer = MatchState{};
  }
};

TEST_F(PeerTest, BeginsAwayAndEachConnectionIsANewOne) {
  EXPECT_EQ(peer.connection(), ConnectionState::Connecting);
  EXPECT_TRUE(peer.away());
  peer.connect(epoch);
  EXPECT_EQ(peer.connection(), ConnectionState::Matching);
  EXPECT_EQ(peer.epoch, epoch);
  peer.disconnect();
  peer.connect(epoch);
  EXPECT_EQ(peer.connection_no, 2u);
  EXPECT_FALSE(peer.in<Peer::Matching>()->answer);
}

TEST_F(PeerTest, AnOfferIsMatchingToTheStatusAndHoldsTheTail) {
  match();
  EXPECT_EQ(peer.hold(), 0u);
  peer.offer({5, true, false});
  EXPECT_EQ(peer.connection(), ConnectionState::Matching);
  EXPECT_EQ(peer.hold(), 5u);
  peer.stream(6, {});
  EXPECT_EQ(peer.hold(), 0u);
}

// A refusal closes the connection soon, but not at once.
TEST_F(PeerTest, ARefusedPeerKeepsItsOfferAndItsResyncUntilTheConnectionIsClosed) {
  match();
  peer.offer({5, true, false});
  peer.stand_alone("refused");
  EXPECT_EQ(peer.hold(), 5u);
  EXPECT_TRUE(peer.away());
  peer.disconnect();
  EXPECT_EQ(peer.hold(), 0u);
  EXPECT_EQ(peer.connection(), ConnectionState::StandAlone);

  match();
  peer.stream(6, {}).resync.emplace().done = 9;
  peer.stand_alone("refused");
  peer.stand_alone("refused again");
  ASSERT_TRUE(peer.resync());
  EXPECT_EQ(peer.resync()->done, 9u);
  EXPECT_EQ(peer.why, "refused again");
  peer.disconnect();
  EXPECT_FALSE(peer.resync());
}

TEST_F(PeerTest, WhatTheStatusShowsAndWhatCountsOutlivesTheConnection) {
  match();
  Peer::Streaming& s = peer.stream(4, {});
  s.sent_end = 9;
  s.received_end = 8;
  peer.durable_end = 7;
  peer.incomplete = true;
  peer.disconnect();
  EXPECT_EQ(peer.sent_end(), 9u);
  EXPECT_EQ(peer.received_end(), 8u);
  EXPECT_EQ(peer.durable_end, 7u);
  EXPECT_TRUE(peer.filling());
  peer.connect(epoch);
  EXPECT_EQ(peer.sent_end(), 9u);
}

TEST_F(PeerTest, FillingEndsWhenAllThatItHadLostIsDurableThere) {
  peer.refill = 5;
  peer.durable_end = 4;
  EXPECT_TRUE(peer.filling());
  peer.durable_end = 5;
  EXPECT_FALSE(peer.filling());
}

using PeerDeathTest = PeerTest;
TEST_F(PeerDeathTest, TransitionsComeFromWhereTheyMayComeFrom) {
  EXPECT_DEATH(peer.stream(1, {}), "Matching");
  EXPECT_DEATH(peer.offer({1, true, true}), "Matching");
  EXPECT_DEATH(peer.end_resync(), "resync");
  peer.connect(epoch);
  EXPECT_DEATH(peer.stream(1, {}), "Matching") << "without an answer, its log is unknown";
  peer.in<Peer::Matching>()->answer = MatchState{};
  EXPECT_DEATH(peer.offer({0, true, true}), "hold");
  peer.stream(1, {});
  EXPECT_DEATH(peer.offer({1, true, true}), "Matching");
}

}  // namespace
}  // namespace twinloft::repl::core
