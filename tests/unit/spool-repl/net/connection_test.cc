// A connection over streams in memory: every split of the bytes, and a failure of every call.
#include "connection.h"

#include <gtest/gtest.h>

#include "../support/manual_loop.h"
#include "../support/memory_stream.h"
#include "sample_volume.h"
#include "twinloft/spool-repl/compress/frame.h"

namespace twinloft::repl::net {
namespace {

constexpr Duration timeout = std::chrono::seconds(6);

struct ConnectionTest : testing::Test {
  struct End {
    MemoryStream* stream = nullptr;
    int ready = 0;
    std::vector<PeerMessage> got;
    std::vector<std::string> closed;
    int after_close = 0;  // number of events after `closed`
    std::unique_ptr<Connection> connection;
  };

  // Replica 1 dials replica 2.
  void make(MemoryStream::Limits limits,
            stream::Stream::State state_of_dialer = stream::Stream::State::open) {
    there = std::make_shared<MemoryPipe>();
    back = std::make_shared<MemoryPipe>();
    a = {};
    b = {};
    make_end(a, 1, std::make_unique<MemoryStream>(back, there, limits, state_of_dialer));
    make_end(b, 2, std::make_unique<MemoryStream>(there, back, limits));
  }
  void make_end(End& end, ReplicaId id, std::unique_ptr<MemoryStream> stream) {
    bool dials = id == 1;
    end.stream = stream.get();
    Connection::Events events{
        [&end](Connection&) { end.after_close += end.closed.empty() ? 0 : 1; },
        [&end](Connection&) { ++end.ready, end.after_close += end.closed.empty() ? 0 : 1; },
        [&end](Connection&, PeerMessage m) {
          end.got.push_back(std::move(m));
          end.after_close += end.closed.empty() ? 0 : 1;
        },
        [&end](Connection&, const std::string& why) { end.closed.push_back(why); }};
    end.connection = std::make_unique<Connection>(
        loop, std::move(stream), pool, dials ? "replica 2" : "the caller",
        Handshake({volume, 1000, id, {}, features}, ByStream{},
                  dials ? Handshake::Direction::dialed : Handshake::Direction::accepted, dials ? 2 : 0,
                  random),
        Connection::Limits{timeout, std::chrono::seconds(3), 1u << 20}, std::move(events));
  }
  // Runs until neither side makes progress.
  void run() {
    for (bool moved = true; moved;) {
      moved = a.stream->turn();
      moved |= b.stream->turn();
      moved |= loop.run_posted();
    }
  }
  void send(End& end, const PeerMessage& message) {
    std::vector<std::byte> bytes;
    encode_peer_message(message, bytes);
    ByteSpan payload = bytes;
    end.connection->send(wire_type(message), {&payload, 1});
    end.connection->flush();
    std::fill(bytes.begin(), bytes.end(), std::byte{0});  // reusable after flush()
  }
  PeerMessage record(std::uint64_t number, std::size_t blocks) {
    RecordMessage m{
        {number, volume}, std::vector<std::byte>(64), std::vector<std::byte>(blocks * block_size)};
    random.fill(m.meta);
    random.fill(m.payload);
    return m;
  }
  void expect_talk() {
    std::vector<PeerMessage> sent = {record(1, 3), Commit{{1, volume}, {}}, record(2, 1)},
                             answers = {Ack{{1, volume}, Lsn{1}, {}}, Refuse{"no"}};
    for (const auto& m : sent) send(a, m);
    for (const auto& m : answers) send(b, m);
    run();
    EXPECT_TRUE(b.got == sent);
    EXPECT_TRUE(a.got == answers);
  }

  static constexpr std::uint64_t without_codecs = features_known & ((1u << codecs_shift) - 1) &
                                                  ~feature_paths;
  std::uint64_t features = without_codecs;
  std::shared_ptr<stream::WorkPool> pool;
  ManualLoop loop;
  OsRandom random;
  std::shared_ptr<MemoryPipe> there, back;
  End a, b;
};

TEST_F(ConnectionTest, ByteByByte) {
  for (std::uint64_t offered : {without_codecs, without_codecs | feature_paths}) {
    features = offered;
    make({.read_max = 1});
    run();
    ASSERT_EQ(a.ready, 1);
    ASSERT_EQ(b.ready, 1);
    EXPECT_EQ(a.connection->has_paths(), offered != without_codecs);
    expect_talk();
    EXPECT_TRUE(a.closed.empty() && b.closed.empty());
  }
}

TEST_F(ConnectionTest, InShortWritesAndWithLittleRoom) {
  for (MemoryStream::Limits limits : {MemoryStream::Limits{.write_max = 7}, MemoryStream::Limits{.room = 1},
                                      MemoryStream::Limits{.read_max = 900, .write_max = 50, .room = 1000}}) {
    features ^= feature_paths;
    make(limits);
    run();
    ASSERT_EQ(a.ready + b.ready, 2);
    expect_talk();
    EXPECT_TRUE(a.closed.empty() && b.closed.empty());
  }
}

TEST_F(ConnectionTest, WithAReleaseThatKnowsNoFrames) {
  for (std::size_t read_max : {std::size_t{1}, SIZE_MAX}) {
    features = without_codecs;
    make({.read_max = read_max});
    features = feature_buffers;
    make_end(b, 2, std::make_unique<MemoryStream>(there, back, MemoryStream::Limits{.read_max = read_max}));
    run();
    ASSERT_EQ(a.ready + b.ready, 2);
    expect_talk();
    EXPECT_FALSE(a.connection->has_frames() || b.connection->has_frames());
  }
}

// A slow line, and a large frame: there is no content for a long time.
TEST_F(ConnectionTest, APartOfAFrameIsASignOfLife) {
  pool = std::make_shared<stream::WorkPool>(1);
  features = features_known & ~feature_paths;
  make({});
  run();
  ASSERT_EQ(a.ready + b.ready, 2);
  auto header = compress::encode_frame_header({compress::Codec::zlib, 1000, 500});
  there->bytes.insert(there->bytes.end(), header.begin(), header.end());
  b.stream->turn();
  for (int i = 0; i < 20; ++i) {
    loop.pass(timeout / 2);
    there->bytes.push_back(std::byte{1});
    ++there->written;
    b.stream->turn();
    ASSERT_TRUE(b.connection->is_open()) << i;
  }
  loop.pass(timeout);
  ASSERT_FALSE(b.connection->is_open());
  EXPECT_EQ(b.closed[0], "nothing from replica 1 for 6000 ms");
}

TEST_F(ConnectionTest, APoolThatDoesNotComeToItsWorkEndsNoConnection) {
  pool = std::make_shared<stream::WorkPool>(1);
  features = features_known;
  make({});
  run();
  a.connection->set_packing({compress::Method{compress::Codec::zlib, 0}});
  pool->hold(true);
  RecordMessage m{{1, volume}, std::vector<std::byte>(64), std::vector<std::byte>(20 * block_size)};
  for (int i = 0; i < 10; ++i) send(a, m);
  std::size_t before = there->written;
  for (int i = 0; i < 9; ++i) {
    for (int turn = 0; turn < 8; ++turn) {
      loop.pass(timeout / 16);
      run();
    }
    EXPECT_GT(there->written, before) << i;
    before = there->written;
  }
  EXPECT_TRUE(a.connection->is_open() && b.connection->is_open());
  pool->hold(false);
}

// Each read and each write of either side fails once, through a whole dialogue.
TEST_F(ConnectionTest, FailsAtEachCall) {
  for (bool dialer : {true, false}) {
    std::size_t failed = 0;
    for (std::size_t at = 0;; ++at) {
      there = std::make_shared<MemoryPipe>();
      back = std::make_shared<MemoryPipe>();
      a = {};
      b = {};
      MemoryStream::Limits limits{.read_max = 9000, .write_max = 7000};
      auto one = std::make_unique<MemoryStream>(back, there, limits),
           other = std::make_unique<MemoryStream>(there, back, limits);
      (dialer ? one : other)->fails_at = at;
      make_end(a, 1, std::move(one));
      make_end(b, 2, std::move(other));
      run();
      if (a.connection->is_open()) send(a, record(1, 2));
      if (b.connection->is_open()) send(b, Refuse{"no"});
      run();
      End &breaks = dialer ? a : b, &hears = dialer ? b : a;
      if (breaks.stream->calls <= at) break;
      ++failed;
      ASSERT_EQ(breaks.closed.size(), 1u) << at;
      EXPECT_NE(breaks.closed[0].find(": broken by the test"), std::string::npos) << breaks.closed[0];
      ASSERT_EQ(hears.closed.size(), 1u) << at;
      EXPECT_NE(hears.closed[0].find("closed the connection"), std::string::npos) << hears.closed[0];
      EXPECT_EQ(a.after_close + b.after_close, 0) << at;
      EXPECT_FALSE(a.connection->is_open() || b.connection->is_open());
    }
    EXPECT_GT(failed, 40u);
    EXPECT_TRUE(a.closed.empty() && b.closed.empty()) << "the last dialogue had no failure";
    EXPECT_EQ(b.got.size(), 1u);
  }
}

// The peer's bytes end early: after each byte of the handshake, and within the trial.
TEST_F(ConnectionTest, EndsAfterEachByte) {
  make({});
  run();
  // A frame for the trial, and one for the answer to the peer's.
  std::size_t trial = 128 * 1024 + 2 * wire_header_bytes + 2 * compress::header_bytes;
  std::size_t all = back->written, handshake = all - trial;
  for (std::size_t cut = 0; cut < all; cut += cut < handshake + 40 ? 1 : 9973) {
    there = std::make_shared<MemoryPipe>();
    back = std::make_shared<MemoryPipe>();
    back->cut_at = cut;
    back->ended = cut == 0;
    a = {};
    b = {};
    make_end(a, 1, std::make_unique<MemoryStream>(back, there, MemoryStream::Limits{}));
    make_end(b, 2, std::make_unique<MemoryStream>(there, back, MemoryStream::Limits{}));
    run();
    ASSERT_EQ(a.closed.size(), 1u) << cut;
    EXPECT_EQ(a.ready, 0) << cut;
    EXPECT_EQ(a.closed[0].find("during the handshake") == std::string::npos, cut >= handshake)
        << cut << ": " << a.closed[0];
  }
}

TEST_F(ConnectionTest, SaysNothingBeforeTheStreamIsOpen) {
  make({}, stream::Stream::State::opening);
  a.connection->flush();
  run();
  EXPECT_EQ(there->written, 0u);
  a.stream->finish_opening({});
  run();
  EXPECT_EQ(a.ready + b.ready, 2);
}

TEST_F(ConnectionTest, AStreamThatCannotBeOpened) {
  make({}, stream::Stream::State::opening);
  a.stream->finish_opening(fail(Errc::io, "Connection refused"));
  ASSERT_EQ(a.closed, std::vector<std::string>{"cannot connect to replica 2: Connection refused"});
  EXPECT_FALSE(a.connection->is_open());
  EXPECT_EQ(there->written, 0u);
  loop.pass(timeout * 3);
  EXPECT_EQ(a.closed.size(), 1u) << "the timer is removed too";
}

TEST_F(ConnectionTest, OpeningIsPartOfTheHandshakesTime) {
  make({}, stream::Stream::State::opening);
  loop.pass(std::chrono::milliseconds(3001));
  ASSERT_EQ(a.closed.size(), 1u);
  EXPECT_EQ(a.closed[0], "nothing from replica 2 for 3000 ms");
  EXPECT_FALSE(a.connection->was_stuck());
}

TEST_F(ConnectionTest, AStreamThatTakesNothingIsClosed) {
  make({});
  run();
  a.stream->limits.room = 0;
  for (int i = 0; i < 64 && a.closed.empty(); ++i) send(a, record(1, 8));
  ASSERT_EQ(a.closed.size(), 1u);
  EXPECT_EQ(a.closed[0], "replica 2 does not receive: 1 MiB wait for it");
}

TEST_F(ConnectionTest, AsksTheStreamWhetherItIsStuck) {
  for (bool stuck : {false, true}) {
    make({});
    run();
    a.stream->stuck = stuck;
    a.connection->close("over");
    EXPECT_EQ(a.connection->was_stuck(), stuck);
  }
}

}  // namespace
}  // namespace twinloft::repl::net
