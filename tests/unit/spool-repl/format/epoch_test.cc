// The single codec of epochs for records, superblock and wire, and what a full table keeps of older epochs.
#include "twinloft/spool-repl/format/epoch.h"

#include <gtest/gtest.h>

#include "samples.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::repl {
namespace {

using namespace samples;

// Bit (id - 1) of a set is a replica. Any other id would shift beyond the set.
constexpr ReplicaId nobody[] = {0, replica_id_max + 1, UINT32_MAX};

TEST(EpochCodec, AWriterThatIsNoReplicaIsRefusedInARecord) {
  EXPECT_TRUE(decode_body_meta(encoded(epoch_body()), volume, volume_blocks));
  for (ReplicaId writer : nobody) {
    Body b = epoch_body();
    b.epoch_change.writer = writer;
    auto out = decode_body_meta(encoded(b), volume, volume_blocks);
    ASSERT_FALSE(out) << writer;
    EXPECT_EQ(out.error().code, Errc::corrupt);
    EXPECT_NE(out.error().message.find(fmt::format("an epoch of replica {}", writer)), std::string::npos)
        << out.error().message;
  }
}

TEST(EpochCodec, AWriterThatIsNoReplicaIsRefusedInTheSuperblock) {
  for (ReplicaId writer : nobody) {
    Superblock sb = superblock();
    sb.epochs[1].writer = writer;
    EXPECT_EQ(decode_superblock(encoded(sb)).error().code, Errc::corrupt) << writer;
  }
  Superblock sb = superblock();
  auto& damaged = std::get<disk_state::Damaged>(sb.disk);
  damaged.newest->writer = replica_id_max + 1;
  EXPECT_FALSE(decode_superblock(encoded(sb)));
  damaged.newest->writer = 0;  // the record is lost
  EXPECT_TRUE(decode_superblock(encoded(sb)));
}

TEST(EpochCodec, AWriterThatIsNoReplicaIsRefusedOnTheWire) {
  for (ReplicaId writer : nobody) {
    Begin begin{epoch, mark(17), Lsn{12}, table({{epoch, Lsn{18}, writer, 2}})};
    EXPECT_FALSE(decode_peer_message(wire_type(begin), encoded(PeerMessage(begin)))) << writer;
    NodeState state;
    state.epoch = {epoch, Lsn{3}, writer, 2};
    EXPECT_EQ(decode_peer_message(wire_type(state), encoded(PeerMessage(state))).has_value(), writer == 0)
        << writer;
  }
}

TEST(EpochCodec, OtherReplicasInTheSuperblockAreReplicas) {
  auto refused = [](auto change) {
    Superblock sb = superblock();
    change(sb);
    return !decode_superblock(encoded(sb));
  };
  EXPECT_FALSE(refused([](Superblock&) {}));
  EXPECT_TRUE(refused([](Superblock& s) { s.split_brains[0].with = 0; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.split_brains[0].with = replica_id_max + 1; }));
  EXPECT_TRUE(refused([](Superblock& s) { s.dirty[1].peer = replica_id_max + 1; }));
}

TEST(EpochCodec, AsManySplitBrainsAsThereAreOthers) {
  Superblock sb = superblock();
  sb.epochs.clear();
  for (std::uint32_t i = 0; i < epoch_table_max; ++i) sb.epochs.push_back({{i, volume}, Lsn{i * 10}, 1, 0b1});
  sb.split_brains.clear();
  for (ReplicaId id = 1; id <= split_brains_max; ++id) sb.split_brains.push_back({id, Lsn{id}});
  auto out = decode_superblock(encoded(sb));
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(*out, sb);
}

struct ForgottenTest : testing::Test {
  static Epoch at(std::uint64_t counter, int history = 0) {
    Epoch e{counter, volume};
    e.id.bytes[0] = static_cast<std::byte>(counter);
    e.id.bytes[1] = static_cast<std::byte>(history);
    return e;
  }
  static void note(EpochTable& t, std::uint64_t counter, ReplicaId writer, std::uint32_t flags = 0,
                   int history = 0) {
    t.note({at(counter, history), Lsn{counter * 10}, writer, set_of(writer), flags});
  }
};

TEST_F(ForgottenTest, ForceIsKeptWhenItsEpochLeavesTheTable) {
  EpochTable t;
  note(t, 1, 1);
  note(t, 2, 3, epoch_by_force);
  for (std::uint64_t i = 3; i <= epoch_table_max + 1; ++i) note(t, i, 1);
  EXPECT_EQ(t.forgotten_force, ForgottenForce()) << "the epoch is still in the table";
  note(t, epoch_table_max + 2, 1);
  EXPECT_EQ(t.forgotten_force, (ForgottenForce{at(2), Lsn{20}, set_of(3)}));
  for (std::uint64_t i = 40; i < 140; ++i) note(t, i, 1, i == 50 ? epoch_by_force : 0u);
  EXPECT_EQ(t.forgotten_force, (ForgottenForce{at(50), Lsn{500}, set_of(1) | set_of(3)}));
}

// A start adds the epochs of its log again.
TEST_F(ForgottenTest, NotingTheLogAgainChangesNothing) {
  EpochTable t;
  for (std::uint64_t i = 1; i <= 40; ++i) note(t, i, 1 + i % 3, i % 5 == 0 ? epoch_by_force : 0u);
  EpochTable again = t;
  for (std::uint64_t i = 18; i <= 40; ++i) note(again, i, 1 + i % 3, i % 5 == 0 ? epoch_by_force : 0u);
  EXPECT_EQ(again, t);
}

TEST_F(ForgottenTest, WhoseHistoryHasItKnowsIt) {
  EpochTable there;
  note(there, 2, 3, epoch_by_force);
  for (std::uint64_t i = 3; i <= 30; ++i) note(there, i, 1);
  ASSERT_EQ(there.forgotten_force.epoch, at(2));
  EpochTable stale, came_after, forgot_too, diverged;
  note(stale, 1, 1);
  note(came_after, 2, 3, epoch_by_force);
  note(came_after, 3, 1);
  forgot_too = there;
  for (std::uint64_t i = 1; i < 25; ++i) note(diverged, i, 1, 0, 9);
  EXPECT_EQ(forcers_unknown_to(stale, there), set_of(3));
  EXPECT_EQ(forcers_unknown_to(diverged, there), set_of(3)) << "higher counters, but another history";
  EXPECT_EQ(forcers_unknown_to(came_after, there), 0u);
  EXPECT_EQ(forcers_unknown_to(forgot_too, there), 0u);
  EXPECT_EQ(forcers_unknown_to(there, stale), 0u);
}

// Cutting it off also removes what was known about earlier forced promotions.
TEST_F(ForgottenTest, CutOffItLeavesADoubt) {
  EpochTable t;
  note(t, 2, 3, epoch_by_force);
  for (std::uint64_t i = 3; i <= 30; ++i) note(t, i, 1);
  EpochTable kept = t;
  kept.cut_behind(Lsn{200});
  EXPECT_EQ(kept.back().epoch, at(20));
  EXPECT_EQ(kept.forgotten_force, t.forgotten_force);
  t.cut_behind(Lsn{15});
  EXPECT_TRUE(t.empty());
  EXPECT_EQ(t.forgotten_force, (ForgottenForce{{1, {}}, {}, set_of(3)}));
}

}  // namespace
}  // namespace twinloft::repl
