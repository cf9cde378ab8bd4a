// The source of a resync alone. The test sets the peer's states, and completes the disk reads.
#include "resync_source.h"

#include "primary_parts.h"

namespace twinloft::repl::core {
namespace {

struct ResyncSourceTest : testing::Test {
  ResyncSourceTest() {
    parts.term.begin({1, {}}, set_of(1), {});
    parts.term.note_logged(parts.volume.log.end());
    parts.link_up(2);
    parts.volume.find_dirty(2)->forget();
  }
  Peer& peer() { return parts.peer(2); }
  Output& out() { return parts.volume.out; }
  void offer() {
    peer().connect(parts.term.epoch());
    peer().in<Peer::Matching>()->answer = MatchState{};
    source.offer(peer(), 0);
    check();
  }
  void begin() {
    offer();
    source.handle(peer(), SyncReady{peer().epoch, parts.volume.log.tail_mark(), true});
    ASSERT_TRUE(peer().is_streaming() && peer().resync());
    peer().resync()->compare = false;  // not tested here
    pump();
  }
  void pump() {
    if (source.advance_pace()) source.judge({});
    source.pump();
    check();
  }
  void end_reads(int error = 0) {
    for (const HomeRead& r : std::exchange(out().home_reads, {})) {
      for (const IoPiece& piece : r.pieces) std::memset(piece.data, 0, piece.bytes);
      source.on_sync_read(number_of(r.token), error);
    }
    check();
  }
  void check() { source.check_invariants(); }
  void ack(std::uint64_t seq, bool declined = false) {
    source.handle(peer(), SyncAck{peer().epoch, seq, declined});
    check();
  }

  PrimaryParts parts{with_peers({2})};
  SendRoom room{parts.volume, parts.peers};
  ResyncSource source{parts.volume, parts.repair, parts.peers, parts.term, room};
};

TEST_F(ResyncSourceTest, AnOfferHoldsTheTailAndThePeerCountsForNothing) {
  offer();
  ASSERT_EQ(parts.sent<SyncBegin>().size(), 1u);
  EXPECT_TRUE(parts.sent<SyncBegin>()[0].whole) << "the bitmap does not have it";
  EXPECT_EQ(peer().hold(), parts.volume.log.first());
  EXPECT_TRUE(peer().filling());
}

TEST_F(ResyncSourceTest, IsReadyOnlyForWhatWasOffered) {
  peer().connect(parts.term.epoch());
  source.handle(peer(), SyncReady{peer().epoch, parts.volume.log.tail_mark(), true});
  EXPECT_EQ(peer().connection(), ConnectionState::StandAlone);
  offer();
  source.handle(peer(), SyncReady{{5, {}}, parts.volume.log.tail_mark(), true});
  EXPECT_EQ(peer().connection(), ConnectionState::StandAlone);
}

TEST_F(ResyncSourceTest, SendsAllBlocksThenTheEndAndIsOverWhenThePeerSaysSo) {
  begin();
  std::uint64_t acked = 0;
  for (int i = 0; i < 100 && parts.sent<SyncEnd>().empty(); ++i) {
    end_reads();
    auto data = parts.sent<SyncData>();
    if (!data.empty() && data.back().seq > acked) ack(acked = data.back().seq);
    pump();
  }
  ASSERT_EQ(parts.sent<SyncEnd>().size(), 1u);
  std::uint64_t blocks = 0;
  for (const SyncData& m : parts.sent<SyncData>())
    for (const Extent& e : m.extents) blocks += e.blocks;
  EXPECT_EQ(blocks, PrimaryParts::volume_blocks);
  EXPECT_TRUE(source.nothing_under_way());
  NodeState state;
  state.inconsistent = true;
  source.peer_state(peer(), state);
  EXPECT_TRUE(peer().filling());
  state.inconsistent = false;
  source.peer_state(peer(), state);
  EXPECT_FALSE(peer().filling());
  EXPECT_FALSE(peer().resync());
  EXPECT_EQ(parts.notices(NoticeKind::resync_finished), 1u);
  EXPECT_EQ(parts.reads.used(), 0u);
}

TEST_F(ResyncSourceTest, APeerThatIsConsistentBeforeTheEndIsNotBelieved) {
  begin();
  source.peer_state(peer(), NodeState{});
  EXPECT_TRUE(peer().filling());
  EXPECT_TRUE(peer().resync());
}

TEST_F(ResyncSourceTest, WhatThePeerDeclinesIsSentAgainAfterAPause) {
  begin();
  end_reads();
  auto before = parts.sent<SyncData>();
  ASSERT_FALSE(before.empty());
  std::uint64_t flying = peer().resync()->flying_bytes;
  ack(before[0].seq, true);
  EXPECT_LT(peer().resync()->flying_bytes, flying);
  EXPECT_GT(source.next_tick(), parts.volume.now);
  pump();
  EXPECT_TRUE(out().home_reads.empty()) << "not before the pause is over";
  parts.volume.now = *source.next_tick();
  pump();
  end_reads();
  auto again = parts.sent<SyncData>();
  ASSERT_GT(again.size(), before.size());
  EXPECT_EQ(again[before.size()].extents, before[0].extents);
}

TEST_F(ResyncSourceTest, AnswersToNothingAreRefused) {
  begin();
  ack(1);  // no content was sent, because the reads have not ended
  EXPECT_EQ(peer().connection(), ConnectionState::StandAlone);
  EXPECT_TRUE(peer().resync()) << "until the connection is closed";
  end_reads();
  EXPECT_TRUE(parts.sent<SyncData>().empty()) << "no message is sent on a connection that is being closed";
  peer().disconnect();

  begin();
  source.handle(peer(), SyncDiffer{peer().epoch, 1, 1});
  EXPECT_EQ(peer().connection(), ConnectionState::StandAlone);
}

TEST_F(ResyncSourceTest, AReadForAnEarlierConnectionIsDropped) {
  begin();
  auto old = std::exchange(out().home_reads, {});
  peer().disconnect();
  out().sends.clear();
  begin();
  unsigned reads = peer().resync()->reads;
  for (const HomeRead& r : old) source.on_sync_read(number_of(r.token), 0);
  EXPECT_EQ(peer().resync()->reads, reads);
  EXPECT_TRUE(parts.sent<SyncData>().empty());
  check();
}

TEST_F(ResyncSourceTest, ABlockThatChangedWhileItWasReadIsReadAgain) {
  begin();
  std::size_t reads = out().home_reads.size();
  ASSERT_GT(reads, 0u);
  parts.volume.home_changes++;
  end_reads();
  EXPECT_TRUE(parts.sent<SyncData>().empty());
  EXPECT_EQ(out().home_reads.size(), reads);
  EXPECT_EQ(peer().resync()->reads, reads);
}

TEST_F(ResyncSourceTest, WhatCannotBeReadIsRepairedAndWhatNobodyHasEndsTheConnection) {
  begin();
  std::size_t reads = out().home_reads.size();
  end_reads(EIO);
  EXPECT_EQ(source.waiting_requests(), reads);
  EXPECT_EQ(peer().resync()->reads, reads) << "in flight until the repair has ended";
  EXPECT_TRUE(source.on_repaired({1, true}));
  EXPECT_EQ(peer().resync()->again.size(), 1u);
  EXPECT_TRUE(source.on_repaired({2, false}));
  EXPECT_EQ(peer().connection(), ConnectionState::StandAlone);
  EXPECT_FALSE(source.on_repaired({99, true}));
}

TEST_F(ResyncSourceTest, NothingIsSentBeforeWhatThePeerMayHaveIsCommitted) {
  offer();
  source.handle(peer(), SyncReady{peer().epoch, parts.volume.log.tail_mark(), true});
  peer().resync()->not_before = parts.volume.log.committed_end() + 1;
  pump();
  EXPECT_TRUE(out().home_reads.empty());
  EXPECT_FALSE(peer().resync()->chosen);
}

}  // namespace
}  // namespace twinloft::repl::core
