// Buffered links: who waits for a far replica, what the journals keep for it, and what the primary reports.
#include "far.h"

namespace twinloft::repl::core {

Instant at(Duration d) {
  return Instant{} + d;
}

TEST(WriteTimesTest, TellsSinceWhenARecordWaits) {
  WriteTimes times(seconds(1));
  EXPECT_EQ(times.before(1), std::nullopt);
  times.note(10, at(seconds(1)));
  times.note(20, at(milliseconds(1500)));  // within the interval
  times.note(30, at(seconds(3)));
  times.note(30, at(seconds(9)));  // nothing new
  EXPECT_EQ(times.before(5), at(seconds(1))) << "older than everything that is known";
  EXPECT_EQ(times.before(10), at(seconds(1)));
  EXPECT_EQ(times.before(29), at(seconds(1)));
  EXPECT_EQ(times.before(30), at(seconds(3)));
  times.drop_before(30);
  EXPECT_EQ(times.before(29), at(seconds(3)));
}

TEST(WriteTimesTest, ALongLagTakesLittleMemoryAndStaysRight) {
  WriteTimes times(seconds(1));
  for (RecordNo i = 1; i <= 100'000; ++i) times.note(i, at(seconds(i)));
  for (RecordNo i : {RecordNo{1}, RecordNo{5'000}, RecordNo{70'000}, RecordNo{99'999}}) {
    EXPECT_LE(*times.before(i), at(seconds(i)));
    EXPECT_GT(*times.before(i), at(seconds(i) - seconds(64))) << i;
  }
}

TEST(LineRateTest, AQuietVolumeFitsThroughTheLine) {
  LineRate line(seconds(1));
  EXPECT_TRUE(line.carries_the_load()) << "nothing is known";
  std::uint64_t written = 0, arrived = 0;
  int second = 0;
  auto run = [&](int count, std::uint64_t writes, std::optional<std::uint64_t> arrives) {
    for (int i = 0; i < count; ++i) {
      written += writes, arrived += arrives.value_or(0);
      line.note(written, arrives ? std::optional(arrived) : std::nullopt, at(seconds(++second)));
    }
  };
  run(20, 5000, 1000);
  EXPECT_FALSE(line.carries_the_load());
  run(20, 5000, std::nullopt);
  EXPECT_FALSE(line.carries_the_load()) << "the measured rate stays known";
  run(6, 100, std::nullopt);
  EXPECT_FALSE(line.carries_the_load()) << "the last ten seconds count";
  run(6, 100, std::nullopt);
  EXPECT_TRUE(line.carries_the_load());
  run(20, 800, std::nullopt);
  EXPECT_FALSE(line.carries_the_load()) << "more than three quarters of the line";
}

// ---- cores

// Without a buffer, an acknowledgement under protocol A waits for the send window.
TEST_F(FarBuffersTest, WritersDoNotWaitForTheFarReplica) {
  make_far_with_content(2);
  hold_far();
  auto f = write_mib(3);
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_GT(buffer(1).lag_bytes, 3 * mib);
  EXPECT_GT(buffer(1).lag_lsns, 0u);
  EXPECT_FALSE(buffer(1).slows);
  EXPECT_LT(status(node(1)).peers[0].sent, status(node(1)).last);
  node(1).pass_time(seconds(12));
  EXPECT_GE(buffer(1).lag, seconds(12));
  release_far();
  expect_equal();
  EXPECT_EQ(buffer(1).lag_bytes, 0u);
  EXPECT_EQ(buffer(1).lag, Duration(0));
}

TEST_F(FarBuffersTest, TheJournalKeepsTheRecordsOfAnAbsentReplica) {
  make_far_with_content(2);
  disconnect_far();
  EXPECT_TRUE(node(1).is_done(write_mib(3)));
  checkpoint(1);
  EXPECT_GT(status(node(1)).journal_used, 3 * mib);
  connect_far();
  expect_equal();
  EXPECT_FALSE(says(1, "resync"));
  checkpoint(1);
  EXPECT_LT(status(node(1)).journal_used, mib);
}

TEST_F(FarBuffersTest, AtTheBoundWritersWait) {
  make_far_with_content(2, 2 * mib);
  hold_far();
  auto f = write_mib(3);
  EXPECT_FALSE(node(1).is_done(f));
  EXPECT_TRUE(buffer(1).slows);
  EXPECT_TRUE(says(1, "writers wait for it"));
  EXPECT_EQ(status(node(1)).slowed_by, 2u);
  EXPECT_LT(buffer(1).lag_bytes, 2 * mib + record_blocks_max * block_size);
  release_far();
  exchange();
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_TRUE(says(1, "writers do not wait for it any more"));
  EXPECT_FALSE(says(1, "resync"));
  expect_equal();
}

// A line that breaks while the buffer is full gets some time, as a line that is stuck does.
TEST_F(FarBuffersTest, WithoutProgressTheRecordsAreGivenUp) {
  for (bool away : {false, true}) {
    make_far_with_content(2, 2 * mib);
    hold_far();
    auto f = write_mib(3);
    if (away) disconnect_far(), exchange();
    node(1).pass_time(seconds(19));
    EXPECT_FALSE(node(1).is_done(f));
    node(1).pass_time(seconds(2));
    exchange();
    EXPECT_TRUE(node(1).is_done(f));
    EXPECT_TRUE(buffer(1).given_up);
    EXPECT_EQ(node(1).closed.size(), away ? 0u : 1u);
    checkpoint(1);
    EXPECT_LT(status(node(1)).journal_used, mib);
    if (!away) disconnect_far();
    release_far();
    connect_far();
    expect_equal();
    EXPECT_FALSE(buffer(1).given_up);
  }
}

TEST_F(FarBuffersTest, ByPolicyNoWriterWaits) {
  make_far_with_content(2, 2 * mib, WhenFull::resync);
  hold_far();
  auto f = write_mib(4);
  EXPECT_TRUE(node(1).is_done(f));
  EXPECT_TRUE(buffer(1).given_up);
  ASSERT_EQ(node(1).closed.size(), 1u);
  EXPECT_NE(node(1).closed[0].reason.find("its buffer of 2 MiB is full"), std::string::npos);
  disconnect_far();
  release_far();
  connect_far();
  expect_equal();
}

// A line of 1 MiB a second, and 3 MiB of writes a second: a resync would only fill the buffer again.
TEST_F(FarBuffersTest, AResyncWaitsUntilTheLineCarriesTheLoad) {
  make_far_with_content(2, 3 * mib, WhenFull::resync);
  for (int i = 0; i < 3; ++i) write_mib(1), node(1).pass_time(seconds(1));
  hold_far();
  for (int i = 0; i < 12; ++i) write_mib(3), node(1).pass_time(seconds(1));
  ASSERT_TRUE(buffer(1).given_up);
  disconnect_far();
  release_far();
  connect_far();
  exchange();
  EXPECT_TRUE(buffer(1).waits);
  EXPECT_TRUE(buffer(1).given_up);
  for (int i = 0; i < 11; ++i) node(1).pass_time(seconds(1)), exchange();
  EXPECT_FALSE(buffer(1).given_up) << "the volume is quiet";
  expect_equal();
}

TEST_F(FarBuffersTest, AResyncDoesNotWaitForEver) {
  make_far_with_content(2, 3 * mib, WhenFull::resync);
  for (int i = 0; i < 3; ++i) write_mib(1), node(1).pass_time(seconds(1));
  hold_far();
  for (int i = 0; i < 12; ++i) write_mib(3), node(1).pass_time(seconds(1));
  disconnect_far();
  release_far();
  connect_far();
  bool begun = false;
  for (int i = 0; i < 320 && !begun; ++i) {
    write_mib(1), node(1).pass_time(seconds(1));
    begun = !buffer(1).waits;
    EXPECT_TRUE(!begun || i > 250) << i;
  }
  EXPECT_TRUE(begun);
}

// The tail must not move between the two roles either.
TEST_F(FarBuffersTest, ADemotionKeepsTheRecords) {
  make_far_with_content(2);
  disconnect_far();
  write_mib(3);
  checkpoint(1);
  node(1).step(Demote{5});
  exchange();
  checkpoint(1);
  EXPECT_GT(status(node(1)).journal_used, 3 * mib);
  ASSERT_TRUE(promote(1, true)->ok);
  connect_far();
  expect_equal();
  EXPECT_FALSE(says(1, "resync"));
}

// The far replica has the epoch's record alone, and does not know that it is committed. Writing it home takes
// no disk operation, so no event follows.
TEST_F(FarBuffersTest, AResyncOfAReplicaWithoutContentBegins) {
  make_far(2, 2 * mib, WhenFull::resync);
  disconnect_far();
  restart(2);
  write_mib(4);
  ASSERT_TRUE(buffer(1).given_up);
  checkpoint(1);
  connect_far();
  exchange();
  EXPECT_TRUE(says(2, "resync is finished"));
  expect_equal();
}

// The same with digests that only a further round writes: replica 2 keeps its tail for the far replica.
TEST_F(FarBuffersTest, AResyncBeginsAfterARoundWithoutBlocks) {
  make_far(3, 2 * mib, WhenFull::resync);
  disconnect_far();
  fill(1, 0, 10, 1);
  checkpoint(2);
  node(1).step(Demote{5});
  exchange();
  lost = [](ReplicaId to, const PeerMessage& m) { return to == 2 && std::holds_alternative<Commit>(m); };
  ASSERT_TRUE(promote(1)->ok);
  lost = nullptr;
  disconnect(1, 2);
  write_mib(12);
  checkpoint(1);
  connect(1, 2);
  exchange();
  EXPECT_TRUE(says(2, "resync is finished"));
}

// The records that the journal has no more are given up once, and not again with each event.
TEST_F(FarBuffersTest, AnUnreadableRecordIsReportedOnce) {
  make_far_with_content(2);
  disconnect_far();
  write_mib(1);
  checkpoint(1);
  node(1).fault = [](Disk kind) { return kind == Disk::journal_read ? EIO : 0; };
  connect_far();
  exchange();
  node(1).fault = nullptr;
  for (int i = 0; i < 5; ++i) write_mib(1), node(1).pass_time(seconds(1));
  EXPECT_TRUE(buffer(1).given_up);
  auto& notices = node(1).notices;
  EXPECT_EQ(std::count_if(notices.begin(), notices.end(),
                          [](const std::string& n) { return n.find("are not here any more") != n.npos; }),
            1);
  disconnect_far();
  connect_far();
  expect_equal();
}

// ---- other replicas

TEST_F(FarBuffersTest, AMemberThatIsPromotedGoesOnFromItsOwnRecords) {
  make_far_with_content(3);
  disconnect_far();
  write_mib(3);
  for (ReplicaId id : {1, 2}) checkpoint(id);
  node(1).step(Demote{5});
  exchange();
  ASSERT_TRUE(promote(2)->ok);
  checkpoint(2);
  connect_far();
  expect_equal();
  EXPECT_TRUE(says(2, "peer 3 is connected"));
  EXPECT_FALSE(says(2, "resync"));
}

TEST_F(FarBuffersTest, AMemberKeepsNoMoreThanTheFarReplicaLacks) {
  make_far_with_content(3);
  write_mib(2);
  node(1).pass_time(seconds(2));  // KeepFor
  exchange();
  for (ReplicaId id : {1, 2, 3}) checkpoint(id);
  EXPECT_LT(status(node(2)).journal_used, mib);
  EXPECT_EQ(buffer(2).lag_bytes, buffer(1).lag_bytes);
}

TEST_F(FarBuffersTest, WhatThePrimaryGivesUpAMemberGivesUp) {
  make_far_with_content(3, 2 * mib, WhenFull::resync);
  hold_far();
  write_mib(4);
  node(1).pass_time(seconds(2));
  exchange();
  EXPECT_TRUE(buffer(1).given_up);
  EXPECT_TRUE(buffer(2).given_up);
  release_far();
  disconnect_far();
  connect_far();
  exchange();
  for (int i = 0; i < 3; ++i) node(1).pass_time(seconds(1)), exchange();
  EXPECT_FALSE(buffer(2).given_up) << "after the resync, records suffice again";
}

// A release without buffers closes the connection at a message that it does not know.
TEST_F(FarBuffersTest, AnOldReleaseGetsNoNewMessage) {
  make_far_with_content(3);
  for (ReplicaId id : {2, 3}) {
    disconnect(1, id);
    up[{1, id}] = true;
    node(1).step(PeerUp{id, false});
    node(id).step(PeerUp{1});
  }
  exchange();
  std::size_t before = node(1).sent.size();
  write_mib(1);
  node(1).pass_time(seconds(2));
  exchange();
  for (std::size_t i = before; i < node(1).sent.size(); ++i) {
    EXPECT_FALSE(std::holds_alternative<Behind>(node(1).sent[i]));
    EXPECT_FALSE(std::holds_alternative<KeepFor>(node(1).sent[i]));
  }
}

TEST_F(FarBuffersTest, AForcedPromotionTellsWhatThePrimaryReported) {
  make_far_with_content(2);
  node(1).pass_time(seconds(2));
  exchange();
  hold_far();
  write_mib(3);
  node(1).pass_time(seconds(2));
  exchange();
  auto behind = status(node(2)).behind;
  ASSERT_TRUE(behind);
  EXPECT_GT(behind->last, behind->durable);
  EXPECT_GT(behind->bytes, 2 * mib);
  EXPECT_GE(behind->lag, seconds(2));
  disconnect_far();
  release_far();
  exchange();
  node(2).pass_time(seconds(7));
  auto done = promote(2, true);
  ASSERT_TRUE(done && done->ok) << (done ? done->text : "");
  EXPECT_NE(done->text.find("The primary last reported 7."), std::string::npos) << done->text;
  EXPECT_NE(
      done->text.find(fmt::format("LSN {} to {} were on their way", behind->durable.v + 1, behind->last.v)),
      std::string::npos)
      << done->text;
}

TEST_F(FarBuffersTest, ReportsThatDoNotFitAreRefused) {
  make_far_with_content(3);
  Epoch other{99, {}};
  node(2).input(1, Behind{other, Lsn{5}, Lsn{4}, 1, 1});
  ASSERT_EQ(node(2).closed.size(), 1u);
  node(3).input(1, KeepFor{other, 2, false, {}});
  ASSERT_EQ(node(3).closed.size(), 1u);
}

}  // namespace twinloft::repl::core
