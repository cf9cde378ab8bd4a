// A primary's connections: matching, records, acknowledgements, and slow peers.
#include "peer_links.h"

#include "primary_parts.h"

namespace twinloft::repl::core {
namespace {

struct PeerLinksTest : testing::Test {
  PeerLinksTest() { make(with_peers({2})); }
  void make(Config config) {
    links.reset();
    room.reset();
    parts = std::make_unique<PrimaryParts>(std::move(config));
    membership = std::make_unique<Membership>(parts->volume, parts->checkpointer, parts->peers, parts->term,
                                              requests);
    room = std::make_unique<SendRoom>(parts->volume, parts->peers);
    resync = std::make_unique<ResyncSource>(parts->volume, parts->repair, parts->peers, parts->term, *room);
    links = std::make_unique<PeerLinks>(parts->volume, parts->checkpointer, parts->peers, parts->term,
                                        *membership, *resync, *room);
    membership->take_office(set_of(1), std::nullopt);
    membership->begin_epoch({1, Uuid::generate(parts->random)}, set_of(1), {});
  }
  Peer& peer() { return parts->peer(2); }
  Log& log() { return parts->volume.log; }
  Output& out() { return parts->volume.out; }
  void input(PeerMessage m) {
    links->peer_input(2, std::move(m));
    links->check_invariants();
  }
  void up() {
    parts->link_up(2);
    links->peer_up(2);
  }
  MatchState empty_log() { return {{}, log().tail_mark(), log().tail_mark(), {}}; }
  void connect() {
    up();
    input(empty_log());
    ASSERT_TRUE(peer().is_streaming());
  }
  // The peer's log begins after the end of the log here.
  void offer_a_resync() {
    up();
    MatchState other = empty_log();
    other.tail = other.last = {Lsn{50}, {}};
    input(other);
  }
  std::size_t records() const {
    std::size_t n = 0;
    for (const auto& each : parts->volume.out.sends) n += std::holds_alternative<SendRecord>(each);
    return n;
  }

  FakeRequests requests;
  std::unique_ptr<PrimaryParts> parts;
  std::unique_ptr<Membership> membership;
  std::unique_ptr<SendRoom> room;
  std::unique_ptr<ResyncSource> resync;
  std::unique_ptr<PeerLinks> links;
};

TEST_F(PeerLinksTest, AsksForThePeersLogAndWaitsForTheRecordOfTheEpoch) {
  up();
  EXPECT_EQ(parts->sent<MatchRequest>().size(), 1u);
  input(empty_log());
  EXPECT_TRUE(parts->sent<Begin>().empty()) << "the record of the epoch is not durable here";
  EXPECT_TRUE(peer().in<Peer::Matching>()->again);
  parts->make_durable();
  links->match_those_that_wait();
  ASSERT_EQ(parts->sent<Begin>().size(), 1u);
  EXPECT_EQ(parts->sent<Begin>()[0].from, log().tail_mark());
  EXPECT_EQ(peer().connection(), ConnectionState::Connected);
}

TEST_F(PeerLinksTest, SendsTheRecordsAndTakesAcknowledgementsOfWhatWasSent) {
  parts->make_durable();
  connect();
  EXPECT_EQ(records(), 0u);
  links->pump();
  EXPECT_EQ(records(), 1u);
  input(Ack{peer().epoch, log().last_mark().lsn, log().last_mark()});
  EXPECT_EQ(peer().durable_end, log().end());
  links->update_tail_limit();
  EXPECT_EQ(parts->volume.tail_limit, log().end());
  LogMark elsewhere = log().last_mark();
  elsewhere.lsn = elsewhere.lsn + 1;
  input(Ack{peer().epoch, elsewhere.lsn, elsewhere});
  EXPECT_EQ(peer().connection(), ConnectionState::StandAlone);
}

// Both logs have the record where the stream begins. The peer has it in memory, and its durable records are
// older than the log here reaches back.
TEST_F(PeerLinksTest, AnAcknowledgementMayNameARecordBehindTheTail) {
  parts->make_durable();
  up();
  MatchState same = empty_log();
  same.last = log().last_mark();
  input(same);
  ASSERT_TRUE(peer().is_streaming());
  LogMark older{Lsn{0}, {}};
  ASSERT_FALSE(log().find(older));
  input(Ack{peer().epoch, same.last.lsn, older});
  EXPECT_TRUE(peer().is_streaming());
  EXPECT_EQ(peer().durable_end, 0u) << "nothing is known";
  input(Ack{peer().epoch, same.last.lsn, same.last});
  EXPECT_EQ(peer().durable_end, log().end());
  input(Ack{peer().epoch, same.last.lsn, {same.last.lsn, {}}});
  EXPECT_FALSE(peer().is_streaming()) << "a record of another history";
}

TEST_F(PeerLinksTest, TheFirstRecordOfAVolumeIsSentOnceItIsDurableHere) {
  up();
  peer().in<Peer::Matching>()->answer = empty_log();
  peer().stream(log().first(), log().tail_mark()).received_end = 0;
  links->pump();
  EXPECT_EQ(records(), 0u);
  parts->make_durable();
  links->pump();
  EXPECT_EQ(records(), 1u);
}

TEST_F(PeerLinksTest, AForeignLogIsSearchedForTheLastCommonRecord) {
  parts->make_durable();
  up();
  MatchState other = empty_log();
  other.last = {Lsn{1}, {}};
  input(other);
  ASSERT_EQ(parts->sent<Probe>().size(), 1u);
  Probe probe = parts->sent<Probe>()[0];
  input(ProbeReply{probe.mark, probe.mark == log().tail_mark()});
  for (std::size_t i = 1; i < parts->sent<Probe>().size() && peer().in<Peer::Matching>(); ++i) {
    probe = parts->sent<Probe>()[i];
    input(ProbeReply{probe.mark, probe.mark == log().tail_mark()});
  }
  ASSERT_TRUE(peer().is_streaming());
  EXPECT_EQ(parts->sent<Begin>()[0].from, log().tail_mark());
}

TEST_F(PeerLinksTest, NothingInCommonLeadsToTheOfferOfAResync) {
  parts->make_durable();
  offer_a_resync();
  EXPECT_TRUE(peer().in<Peer::OfferingResync>());
  EXPECT_EQ(parts->sent<SyncBegin>().size(), 1u);
  links->update_tail_limit();
  EXPECT_LE(parts->volume.tail_limit, peer().hold());
}

TEST_F(PeerLinksTest, MessagesOutOfTheirStateAreRefused) {
  parts->make_durable();
  auto is_refused = [&](PeerMessage m) {
    std::size_t before = out().closes.size();
    input(std::move(m));
    bool refused = peer().connection() == ConnectionState::StandAlone && out().closes.size() == before + 1;
    links->peer_down(2);
    return refused;
  };
  up();
  EXPECT_TRUE(is_refused(Ack{peer().epoch, {}, log().tail_mark()})) << "no peer is streaming";
  up();
  EXPECT_TRUE(is_refused(ProbeReply{})) << "no probe was sent";
  up();
  EXPECT_TRUE(is_refused(SyncReady{peer().epoch, log().tail_mark(), true}));
  up();
  EXPECT_TRUE(is_refused(Begin{})) << "only a primary sends this message";
  connect();
  EXPECT_TRUE(is_refused(empty_log())) << "the logs are matched";
  connect();
  EXPECT_TRUE(is_refused(Ack{{7, {}}, {}, log().tail_mark()})) << "the message is of another epoch";
}

// A primary that lost its role must not make a peer cut or discard its log. The next primary decides.
TEST_F(PeerLinksTest, ALostPrimaryBeginsNothingWithAPeer) {
  parts->make_durable();
  up();
  membership->lose("replica 3 is primary");
  input(empty_log());
  EXPECT_FALSE(peer().is_streaming());
  links->peer_down(2);
  offer_a_resync();
  EXPECT_EQ(peer().connection(), ConnectionState::Connecting);
  EXPECT_EQ(parts->sent<MatchRequest>().size(), 1u) << "before it was lost";
  EXPECT_TRUE(parts->sent<Begin>().empty());
  EXPECT_TRUE(parts->sent<SyncBegin>().empty());
}

TEST_F(PeerLinksTest, AFailedDeviceFillsNobody) {
  parts->volume.fail_device("test");
  up();
  EXPECT_EQ(peer().connection(), ConnectionState::StandAlone);
  EXPECT_TRUE(parts->sent<MatchRequest>().empty());
}

TEST_F(PeerLinksTest, APeerOnWhichNothingBecomesDurableIsClosed) {
  parts->make_durable();
  connect();
  links->pump();
  links->close_slow();
  EXPECT_EQ(links->next_tick(), parts->volume.now + parts->volume.config.slow_peer);
  parts->volume.now = parts->volume.now + (parts->volume.config.slow_peer - Duration(1));
  links->close_slow();
  EXPECT_TRUE(peer().is_streaming());
  parts->volume.now = parts->volume.now + Duration(1);
  links->close_slow();
  EXPECT_EQ(peer().connection(), ConnectionState::StandAlone);
  EXPECT_FALSE(links->next_tick());
}

TEST_F(PeerLinksTest, APeerThatIsFilledNeedsProgressOnly) {
  parts->make_durable();
  connect();
  links->pump();
  NodeState unfinished;
  unfinished.inconsistent = true;
  resync->resume(peer(), unfinished, log().tail_mark().lsn);
  for (std::uint64_t acks = 1; acks < 5; ++acks) {
    links->close_slow();
    parts->volume.now = parts->volume.now + (parts->volume.config.slow_peer - Duration(1));
    peer().resync()->acks = acks;
  }
  links->close_slow();
  EXPECT_TRUE(peer().is_streaming());
  parts->volume.now = parts->volume.now + parts->volume.config.slow_peer;
  links->close_slow();
  EXPECT_EQ(peer().connection(), ConnectionState::StandAlone);
}

TEST_F(PeerLinksTest, PeersLearnTheCommitPointOnce) {
  parts->make_durable();
  connect();
  parts->volume.commit_upto(log().end(), [](const LogRecord&) {});
  links->flush_messages(true);
  links->flush_messages(true);
  ASSERT_EQ(parts->sent<Commit>().size(), 1u);
  EXPECT_EQ(parts->sent<Commit>()[0].mark, log().last_mark());
}

TEST_F(PeerLinksTest, TheCommitPointGoesAloneAfterAWhile) {
  parts->make_durable();
  connect();
  parts->volume.out.sends.clear();
  parts->volume.commit_upto(log().end(), [](const LogRecord&) {});
  links->flush_messages(false);
  EXPECT_TRUE(parts->sent<Commit>().empty());
  ASSERT_EQ(links->next_tick(), parts->volume.now + Companion::patience);
  parts->volume.now = *links->next_tick();
  links->flush_messages(false);
  ASSERT_EQ(parts->sent<Commit>().size(), 1u);
  EXPECT_EQ(parts->sent<Commit>()[0].mark, log().last_mark());
}

TEST_F(PeerLinksTest, TheCommitPointTravelsWithOtherMessagesToThePeer) {
  parts->make_durable();
  connect();
  parts->volume.out.sends.clear();
  parts->volume.commit_upto(log().end(), [](const LogRecord&) {});
  parts->volume.out.sends.push_back(Send{static_cast<ReplicaId>(peer().id() + 1), Probe{}});
  links->flush_messages(false);
  EXPECT_TRUE(parts->sent<Commit>().empty()) << "a message to another peer is no company";
  parts->volume.out.sends.push_back(Send{peer().id(), Probe{}});
  links->flush_messages(false);
  EXPECT_EQ(parts->sent<Commit>().size(), 1u);
}

TEST_F(PeerLinksTest, AResyncThatIsOfferedIsTakenBySyncReady) {
  parts->make_durable();
  offer_a_resync();
  LogMark from = parts->sent<SyncBegin>()[0].from;
  input(SyncReady{peer().epoch, from, true});
  ASSERT_TRUE(peer().is_streaming());
  EXPECT_TRUE(peer().resync());
  EXPECT_FALSE(links->streams()[0].holds) << "a replica that is being filled gives no block to others";
}

}  // namespace
}  // namespace twinloft::repl::core
