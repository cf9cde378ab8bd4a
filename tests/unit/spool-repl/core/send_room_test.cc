// What may be on its way to a peer: its window, and its share of the memory of all links.
#include "send_room.h"

#include "primary_parts.h"

namespace twinloft::repl::core {

constexpr std::uint64_t send_mib = 1u << 20, reserve = SendRoom::resync_reserve;

struct FakeLinkMemory final : LinkMemory {
  void holds(ReplicaId, std::uint64_t bytes) override { held = bytes; }
  bool takes(ReplicaId, std::uint64_t more) override {
    if (held + more > most) return false;
    held += more;
    return true;
  }
  std::uint64_t held = 0, most = 1024 * send_mib;
};

struct SendRoomTest : testing::Test {
  static Config config(std::optional<BufferConfig> buffer, std::shared_ptr<LinkMemory> memory) {
    Config c = alone();
    c.peers.push_back({2, buffer ? Protocol::A : Protocol::C, buffer});
    c.send_window_bytes = 4 * send_mib;
    c.sync_window_bytes = 8 * send_mib;
    c.link_memory = std::move(memory);
    return c;
  }
  void make(bool buffered, bool bounded = true) {
    std::optional<BufferConfig> buffer;
    if (buffered) buffer = BufferConfig{64 * send_mib};
    parts.emplace(config(buffer, bounded ? memory : nullptr));
    parts->stream(2);
    room.emplace(parts->volume, parts->peers);
  }
  Peer& peer() { return parts->peer(2); }
  void in_flight(std::uint64_t bytes) { peer().streaming()->sent_bytes = bytes; }
  Peer::Resync& begin_resync() { return peer().streaming()->resync.emplace(); }

  std::shared_ptr<FakeLinkMemory> memory = std::make_shared<FakeLinkMemory>();
  std::optional<PrimaryParts> parts;
  std::optional<SendRoom> room;
};

TEST_F(SendRoomTest, WithoutABoundTheWindowDecides) {
  make(true, false);
  in_flight(4 * send_mib);
  EXPECT_TRUE(room->for_records(peer(), 2 * send_mib)) << "one more than the window";
  in_flight(4 * send_mib + 1);
  EXPECT_FALSE(room->for_records(peer(), 1));
}

TEST_F(SendRoomTest, ABufferedLinkHasFourWindowsIfThereIsMemory) {
  make(true);
  in_flight(16 * send_mib);
  EXPECT_TRUE(room->for_records(peer(), 1));
  in_flight(16 * send_mib + 1);
  EXPECT_FALSE(room->for_records(peer(), 1));
  memory->most = 9 * send_mib + reserve;
  in_flight(9 * send_mib);
  EXPECT_FALSE(room->for_records(peer(), send_mib)) << "a part is for resyncs";
  in_flight(8 * send_mib);
  EXPECT_TRUE(room->for_records(peer(), send_mib));
  EXPECT_EQ(memory->held, 9 * send_mib + reserve);
}

TEST_F(SendRoomTest, WhatIsReadCounts) {
  make(true);
  Peer::Streaming& s = *peer().streaming();
  s.reading_chunk = 7;
  s.reading_bytes = 3 * send_mib;
  room->update();
  EXPECT_EQ(memory->held, 3 * send_mib + reserve);
  s.reading_chunk.reset();
  room->update();
  EXPECT_EQ(memory->held, reserve);
  s.reading = true;
  room->update();
  EXPECT_EQ(memory->held, 3 * send_mib + reserve);
  s.reading = false;
  s.chunk.emplace().bytes.resize(2 * send_mib);
  room->update();
  EXPECT_EQ(memory->held, 2 * send_mib + reserve);
}

// Other links have everything, and records fill the reserve: the resync goes on.
TEST_F(SendRoomTest, RecordsCannotStopAResync) {
  make(true);
  Peer::Resync& resync = begin_resync();
  memory->most = 0;
  in_flight(3 * send_mib);
  EXPECT_FALSE(room->for_records(peer(), 1));
  for (resync.reads = 0; resync.reads < 4; ++resync.reads)
    EXPECT_TRUE(room->for_resync(peer())) << resync.reads;
  EXPECT_FALSE(room->for_resync(peer()));
  memory->most = 3 * send_mib + reserve + SendRoom::resync_chunk;
  EXPECT_TRUE(room->for_resync(peer()));
  memory->most = 1024 * send_mib;
  resync.flying_bytes = 8 * send_mib;
  EXPECT_FALSE(room->for_resync(peer())) << "its window";
}

TEST_F(SendRoomTest, ALostConnectionAndADemotionHoldNothing) {
  make(true);
  in_flight(9 * send_mib);
  room->update();
  EXPECT_EQ(memory->held, 9 * send_mib + reserve);
  peer().disconnect();
  room->update();
  EXPECT_EQ(memory->held, 0u);
  memory->held = 5;
  room.reset();
  EXPECT_EQ(memory->held, 0u);
}

TEST_F(SendRoomTest, AMembersWindowStays) {
  make(false);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(room->for_records(peer(), send_mib));
    EXPECT_EQ(memory->held, send_mib + reserve) << "counted anew";
  }
  memory->most = send_mib;
  EXPECT_FALSE(room->for_records(peer(), 1));
}

}  // namespace twinloft::repl::core
