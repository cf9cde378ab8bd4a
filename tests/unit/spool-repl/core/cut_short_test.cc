// A log that was cut for a new primary, before any record of this primary arrived.
#include "roles.h"

namespace twinloft::repl::core {
namespace {

// Found by the simulator. Replica 1 cuts off the record that counts replica 2 as a member, because 2 is now
// primary without it. Replica 1 crashes before it has the record of 2's promotion. The rest of its log says
// that it is alone.
struct CutShortTest : RolesTest {
  Epoch theirs;
  void cut_short() {
    make_promoted(1, 2, OnPeerLoss::go_on);
    write_flush(1, 0);
    exchange();
    disconnect(1, 2);
    write_flush(1, 1);
    exchange();
    ASSERT_EQ(status(node(1)).in_sync, set_of(1));
    // Replica 2 comes back, but does not get the record that counts it as a member.
    Lsn last = status(node(1)).last;
    lost = [last](ReplicaId to, const PeerMessage& m) {
      auto* record = std::get_if<RecordMessage>(&m);
      if (to != 2 || !record) return false;
      auto body = decode_body_meta(record->meta, Shell::volume(), 1024);
      return body && body->header.first_lsn > last;
    };
    connect(1, 2);
    exchange();
    ASSERT_EQ(status(node(1)).in_sync, set_of(1) | set_of(2));
    disconnect(1, 2);
    lost = nullptr;
    restart(1);
    connect(1, 2);
    exchange();
    node(1).held = [](Disk kind) { return kind == Disk::journal_write; };
    ASSERT_TRUE(promote(2)->ok);
    theirs = status(node(2)).epoch;
    disconnect(1, 2);
    node(1).held = nullptr;
    restart(1);
    ASSERT_EQ(status(node(1)).last, last);
  }
};

TEST_F(CutShortTest, IsNotPromotedByTheSetBefore) {
  cut_short();
  expect_not_promoted(1, "Cannot reach replica 2");
  connect(1, 2);
  exchange();
  EXPECT_EQ(status(node(2)).in_sync, set_of(1) | set_of(2));
  EXPECT_EQ(status(node(1)).last, status(node(2)).last);
  EXPECT_EQ(status(node(2)).epoch, theirs);
}

// Found by the simulator: replica 2 began more epochs since than its table holds. The rest of replica 1's log
// is part of that history nevertheless.
TEST_F(CutShortTest, IsFilledByThatHistoryHoweverLongItIs) {
  for (std::string_view there : {"kept", "forgotten", "another"}) {
    cut_short();
    node(1).held = nullptr;
    std::uint64_t counter = theirs.counter;
    EpochTable table;
    if (there == "kept") table.note({theirs, Lsn{1000}, 2, set_of(2)});
    std::uint64_t count = there == "forgotten" ? epoch_table_max + 4 : 3;
    for (std::uint64_t i = 1; i <= count; ++i)
      table.note({{counter + i, Uuid::generate(node(1).random)}, Lsn{1000 + i}, 2, set_of(2)});
    Epoch now = table.back().epoch;
    Lsn last = status(node(1)).last;
    node(1).step(PeerUp{2});
    node(1).input(2, MatchRequest{now});
    node(1).input(2, SyncBegin{now, {Lsn{2000}, {}}, now, true, {}, {}, table});
    while (node(1).complete_one()) {
    }
    bool split = there == "another";
    EXPECT_EQ(status(node(1)).peers[0].split_brain, split) << there << ": " << status(node(1)).peers[0].why;
    EXPECT_EQ(status(node(1)).last == last, split) << there;
  }
}

// Records of another history may come next. The superblock must name that history before its first record is
// accepted.
TEST_F(CutShortTest, IsOfTheHistoryThatItFollowsNext) {
  cut_short();
  EpochTable table;
  table.note({{theirs.counter + 5, Uuid::generate(node(1).random)}, Lsn{1000}, 2, set_of(1) | set_of(2)});
  node(1).step(PeerUp{2});
  node(1).input(2, MatchRequest{table.back().epoch});
  auto* match = std::get_if<MatchState>(&node(1).sent.back());
  ASSERT_TRUE(match);
  LogMark last = match->last;
  auto cut_for = [&] {
    return decode_superblock({node(1).journal.data(), block_size}).value().cut_for.epoch;
  };
  ASSERT_EQ(cut_for(), theirs);
  node(1).input(2, Begin{table.back().epoch, last, {}, table});
  EXPECT_EQ(status(node(1)).peers[0].connection, ConnectionState::Matching);
  while (node(1).complete_one()) {
  }
  EXPECT_EQ(status(node(1)).peers[0].connection, ConnectionState::Connected) << status(node(1)).peers[0].why;
  EXPECT_EQ(cut_for(), table.back().epoch);
}

}  // namespace
}  // namespace twinloft::repl::core
