// What may be on its way to a peer: its window, and its share of the memory of all links.
#include "send_room.h"

#include "primary_parts.h"

namespace twinloft::repl::core {

constexpr std::uint64_t send_mib = 1u << 20, of_resync = SendRoom::resync_reserve,
                        of_records = buffered_link_reserve - of_resync;

struct FakeLinkMemory final : LinkMemory {
  void holds(ReplicaId, std::uint64_t bytes) override { held = bytes; }
  bool takes(ReplicaId, std::uint64_t more, For) override {
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
  memory->most = 9 * send_mib + of_resync;
  in_flight(9 * send_mib);
  EXPECT_FALSE(room->for_records(peer(), send_mib)) << "a part is for resyncs";
  in_flight(8 * send_mib);
  EXPECT_TRUE(room->for_records(peer(), send_mib));
  EXPECT_EQ(memory->held, 9 * send_mib + of_resync);
}

TEST_F(SendRoomTest, WhatIsReadCounts) {
  make(true);
  Peer::Streaming& s = *peer().streaming();
  auto on_its_way = [&] {
    room->update();
    EXPECT_EQ(memory->held, buffered_link_reserve) << "no more than the reserve is there";
    return room->on_its_way(peer());
  };
  s.reading_chunk = 7;
  s.reading_bytes = 3 * send_mib;
  EXPECT_EQ(on_its_way(), 3 * send_mib);
  s.reading_chunk.reset();
  EXPECT_EQ(on_its_way(), 0u);
  s.reading = true;
  EXPECT_EQ(on_its_way(), 3 * send_mib);
  s.reading = false;
  s.chunk.emplace().bytes.resize(2 * send_mib);
  EXPECT_EQ(on_its_way(), 2 * send_mib);
  begin_resync().flying_bytes = send_mib;
  EXPECT_EQ(on_its_way(), 3 * send_mib);
}

// Other links have everything else.
TEST_F(SendRoomTest, RecordsAndAResyncHaveTheirPartsOfTheReserve) {
  make(true);
  Peer::Resync& resync = begin_resync();
  memory->most = buffered_link_reserve;
  in_flight(of_records);
  EXPECT_FALSE(room->for_records(peer(), 1));
  for (resync.reads = 0; resync.reads < 4; ++resync.reads)
    EXPECT_TRUE(room->for_resync(peer())) << resync.reads;
  EXPECT_FALSE(room->for_resync(peer()));
  in_flight(0);
  EXPECT_FALSE(room->for_resync(peer())) << "that part is for records";
  EXPECT_TRUE(room->for_records(peer(), of_records));
  memory->most = buffered_link_reserve + SendRoom::resync_chunk;
  EXPECT_TRUE(room->for_resync(peer()));
  memory->most = 1024 * send_mib;
  resync.flying_bytes = 8 * send_mib;
  EXPECT_FALSE(room->for_resync(peer())) << "its window";
}

TEST_F(SendRoomTest, ALostConnectionAndADemotionHoldNothing) {
  make(true);
  in_flight(9 * send_mib);
  room->update();
  EXPECT_EQ(memory->held, 9 * send_mib + of_resync);
  peer().disconnect();
  room->update();
  EXPECT_EQ(memory->held, 0u);
  memory->held = 5;
  room.reset();
  EXPECT_EQ(memory->held, 0u);
}

// The acknowledgements of a failed primary's peers still free memory for other links.
TEST(SendRoomOfAPrimaryTest, AFailureKeepsNoMemory) {
  auto memory = std::make_shared<FakeLinkMemory>();
  Config c = with_peer(2);
  c.link_memory = memory;
  Shell shell({.role = Role::primary, .config = c});
  shell.step(PeerUp{2});
  shell.input(2, NodeState{});
  EXPECT_EQ(memory->held, link_reserve);
  shell.step(Detach{});
  ASSERT_TRUE(shell.core->status().failed);
  shell.step(PeerDown{2});
  EXPECT_EQ(memory->held, 0u);
}

TEST_F(SendRoomTest, AMembersWindowStays) {
  make(false);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(room->for_records(peer(), 4 * send_mib));
    EXPECT_EQ(memory->held, 4 * send_mib + of_resync) << "counted anew";
  }
  memory->most = link_reserve;
  EXPECT_FALSE(room->for_records(peer(), 4 * send_mib));
  EXPECT_TRUE(room->for_records(peer(), send_mib)) << "the reserve";
}

}  // namespace twinloft::repl::core
