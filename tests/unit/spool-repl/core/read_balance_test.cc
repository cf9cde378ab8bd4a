// Reads that a member answers: who is asked, which answers count, and the end of each waiting read.
#include "read_balance.h"

#include <set>

#include "roles.h"

namespace twinloft::repl::core {

struct ReadBalanceTest : RolesTest {
  using Kind = ReadPolicy::Kind;
  const Duration patience = Config().balanced_read_timeout;
  std::vector<std::byte> memory = std::vector<std::byte>(65 * block_size);
  std::span<std::byte> out{
      memory.data() + (reinterpret_cast<std::uintptr_t>(memory.data()) % block_size == 0 ? 1 : 0),
      64 * block_size};

  void make_balanced(std::size_t count, Kind kind, std::uint32_t stripe = 16) {
    make_and_settle(count);
    set(kind, stripe);
    for (auto& n : nodes) n->sent.clear(), n->sent_to.clear();
    delivered.assign(count, 0);
  }
  void set(Kind kind, std::uint32_t stripe = 16) { node(1).step(SetReadPolicy{{kind, stripe}}); }
  std::uint64_t read(std::uint64_t block, std::uint32_t blocks = 1) {
    return node(1).submit(ClientOp::read, block * block_size, blocks * static_cast<std::uint32_t>(block_size),
                          out.data());
  }
  bool all(std::uint32_t blocks, int value, std::uint32_t from = 0) const {
    return std::all_of(out.begin() + static_cast<std::ptrdiff_t>(from * block_size),
                       out.begin() + static_cast<std::ptrdiff_t>((from + blocks) * block_size),
                       [&](std::byte b) { return b == std::byte(value); });
  }
  PeerStatus peer(ReplicaId id) {
    for (const PeerStatus& p : status(node(1)).peers)
      if (p.id == id) return p;
    return {};
  }
  bool ended(std::uint64_t id) { return node(1).is_done(id) && node(1).done.at(id) == 0; }
  void lose_answers() {
    lost = [](ReplicaId, const PeerMessage& m) { return std::holds_alternative<BlocksRead>(m); };
  }
  // The member is asked, and its answer does not come.
  std::uint64_t ask_in_vain(std::uint64_t block = 5) {
    lose_answers();
    std::uint64_t id = read(block);
    exchange();
    EXPECT_FALSE(node(1).is_done(id));
    EXPECT_EQ(said<BlocksRead>(2).size(), 1u);
    return id;
  }
};

TEST_F(ReadBalanceTest, AMemberAnswersForManyBlocksAtOnce) {
  make_balanced(2, Kind::prefer_remote);
  auto id = read(3, 60);
  EXPECT_EQ(node(1).pending(Disk::home_read), 0u);
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_TRUE(all(60, 3));
  EXPECT_EQ(said<ReadBlocks>(1).size(), 1u);
  EXPECT_EQ(peer(2).reads, 1u);
  EXPECT_EQ(status(node(1)).read_policy.kind, Kind::prefer_remote);
  node(1).settle(), node(2).settle();
  EXPECT_TRUE(node(1).core->settled() && node(2).core->settled());
}

TEST_F(ReadBalanceTest, ZerosAreNotSent) {
  make_balanced(2, Kind::prefer_remote);
  auto id = read(290, 20);  // 10 were written
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_TRUE(all(10, 3) && all(10, 0, 10));
  EXPECT_EQ(said<BlocksRead>(2).at(0).content.size(), 10 * block_size);
}

TEST_F(ReadBalanceTest, WhatIsInMemoryIsNotAskedFor) {
  make_balanced(2, Kind::prefer_remote);
  fill(1, 10, 12, 4);
  auto id = read(10, 2);
  EXPECT_TRUE(ended(id)) << "at once";
  EXPECT_TRUE(all(2, 4));
  auto around = read(8, 6);
  exchange();
  EXPECT_TRUE(ended(around));
  EXPECT_TRUE(all(2, 3) && all(2, 4, 2) && all(2, 3, 4));
  std::set<std::uint64_t> asked;
  for (const ReadBlocks& q : said<ReadBlocks>(1))
    for (std::uint32_t i = 0; i < q.blocks; ++i) asked.insert(q.lba.v + i);
  EXPECT_EQ(asked, (std::set<std::uint64_t>{8, 9, 12, 13}));
}

TEST_F(ReadBalanceTest, APartOfABlockCanBeRead) {
  make_balanced(2, Kind::prefer_remote);
  std::fill(out.begin(), out.end(), std::byte{0xee});
  auto id = node(1).submit(ClientOp::read, 5 * block_size + 512, 2 * block_size, out.data());
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_TRUE(all(2, 3));
  EXPECT_TRUE(all(1, 0xee, 2));
}

TEST_F(ReadBalanceTest, TheAnswerDoesNotCountForABlockThatWasWrittenMeanwhile) {
  make_balanced(2, Kind::prefer_remote);
  auto id = read(5, 3);
  in = filled(block_size, 9);
  node(1).submit(ClientOp::write, 6 * block_size, block_size, in.data());
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_TRUE(all(1, 3) && all(1, 9, 1) && all(1, 3, 2));
}

// The block is home again when the answer comes: only its digest tells that the answer is older.
TEST_F(ReadBalanceTest, TheAnswerDoesNotCountForABlockThatHasGoneHomeMeanwhile) {
  make_balanced(2, Kind::prefer_remote);
  lose_answers();
  auto id = read(5, 3);
  exchange();
  fill(1, 6, 7, 9);
  checkpoint(1);
  ASSERT_EQ(said<BlocksRead>(2).size(), 1u);
  node(1).input(2, said<BlocksRead>(2)[0]);
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_TRUE(all(1, 3) && all(1, 9, 1) && all(1, 3, 2));
  EXPECT_EQ(peer(2).wrong_reads, 0u) << "the member did nothing wrong";
}

TEST_F(ReadBalanceTest, OtherContentIsReadHereAndCounted) {
  make_balanced(2, Kind::prefer_remote);
  auto id = ask_in_vain();
  BlocksRead wrong = said<BlocksRead>(2)[0];
  wrong.content = filled(block_size, 0x77);
  node(1).input(2, wrong);
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_TRUE(all(1, 3));
  EXPECT_EQ(peer(2).wrong_reads, 1u);
  EXPECT_NE(node(1).notices.back().find("with other content than was written"), std::string::npos);
  lost = nullptr;
  read(6);
  EXPECT_EQ(said<ReadBlocks>(1).size(), 1u) << "it rests";
}

TEST_F(ReadBalanceTest, AMemberThatCannotReadSaysSoAndIsRepaired) {
  make_balanced(2, Kind::prefer_remote);
  node(2).unreadable = {205};
  auto id = read(190, 60);
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_TRUE(all(60, 3));
  EXPECT_TRUE(said<BlocksRead>(2).at(0).blocks == 0);
  std::fill_n(node(2).data.begin() + 20 * block_size, block_size, std::byte{0x66});  // rot
  node(1).pass_time(std::chrono::milliseconds(100));
  auto rotten = read(20);
  exchange();
  EXPECT_TRUE(ended(rotten));
  EXPECT_TRUE(all(1, 3));
  EXPECT_TRUE(said<BlocksRead>(2).at(1).blocks == 0);
  node(2).pass_time(std::chrono::milliseconds(50));
  exchange();
  checkpoint(2);
  EXPECT_TRUE(node(2).unreadable.empty()) << "repaired";
  EXPECT_EQ(node(2).data[20 * block_size], std::byte{3}) << "repaired";
}

// The answers of a slow line pile up otherwise.
TEST_F(ReadBalanceTest, AQuestionWithoutAnAnswerStaysInTheQueue) {
  make_balanced(2, Kind::prefer_remote);
  lose_answers();
  auto questions = [&] { return said<ReadBlocks>(1).size(); };
  for (std::uint64_t i = 0; i < 60; ++i) read(i, 60);
  std::size_t first = questions();
  EXPECT_EQ(first, 32u) << "8 MiB";
  exchange();
  node(1).pass_time(patience);
  exchange();
  node(1).pass_time(std::chrono::seconds(5));
  read(5);
  EXPECT_EQ(questions(), first);
  exchange();
  lost = nullptr;
  ASSERT_EQ(said<BlocksRead>(2).size(), first);
  for (const BlocksRead& late : said<BlocksRead>(2)) node(1).input(2, late);
  EXPECT_TRUE(node(1).closed.empty());
  read(6);
  EXPECT_EQ(questions(), first + 1);
  exchange();
}

TEST_F(ReadBalanceTest, AMemberIsNotMadeToHoldManyAnswers) {
  make_balanced(2, Kind::prefer_local);
  fill(1, 0, 256, 9);  // in the committed image of the member
  Output out;
  ReadBlocks question{status(node(1)).epoch, 1, Lba{0}, 256, {}};
  std::uint64_t bytes = 0;
  Core& core = *node(2).core;
  for (question.seq = 1; question.seq <= 100; ++question.seq) core.step(PeerInput{1, question});
  core.get_output(out);
  std::size_t declined = 0;
  for (auto& each : out.sends)
    if (auto* send = std::get_if<Send>(&each))
      if (auto* m = std::get_if<BlocksRead>(&send->message))
        bytes += m->content.size(), declined += m->blocks == 0;
  EXPECT_LE(bytes, 16u << 20);
  EXPECT_EQ(declined, 84u);
}

TEST_F(ReadBalanceTest, ASilentPeerCostsABoundedDelay) {
  make_balanced(2, Kind::prefer_remote);
  auto id = ask_in_vain();
  node(1).pass_time(patience - std::chrono::milliseconds(1));
  EXPECT_EQ(node(1).pending(Disk::home_read), 0u);
  node(1).pass_time(std::chrono::milliseconds(1));
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_TRUE(all(1, 3));
  auto next = read(7);
  EXPECT_EQ(node(1).pending(Disk::home_read), 1u) << "nobody is asked for a while";
  exchange();
  EXPECT_TRUE(ended(next));
  lost = nullptr;
  node(1).pass_time(std::chrono::seconds(5));
  exchange();
  read(8);
  EXPECT_EQ(node(1).pending(Disk::home_read), 0u);
}

// The core's last turn may be long ago when an event comes.
TEST_F(ReadBalanceTest, ADeadlineBeginsWithItsEvent) {
  make_balanced(2, Kind::prefer_remote);
  for (ReplicaId id : {1u, 2u}) {
    Core& core = *node(id).core;
    Instant now = node(id).now() + std::chrono::seconds(1);
    core.note_time(now);
    if (id == 1)
      core.step(ClientRequest{ClientOp::read, false, 5 * block_size, block_size, out.data(), 99});
    else
      core.step(PeerInput{1, ReadBlocks{status(node(1)).epoch, 1, Lba{5}, 1, status(node(2)).commit + 1}});
    core.note_time(node(id).now());  // no effect
    EXPECT_EQ(core.next_tick(), now + patience) << id;
    Output unsent;
    core.get_output(unsent);
  }
}

TEST_F(ReadBalanceTest, ALateAnswerChangesNothing) {
  make_balanced(2, Kind::prefer_remote);
  auto id = ask_in_vain();
  BlocksRead late = said<BlocksRead>(2)[0];
  node(1).pass_time(patience);
  exchange();
  ASSERT_TRUE(ended(id));
  std::fill(out.begin(), out.end(), std::byte{0xee});
  node(1).input(2, late);
  EXPECT_TRUE(all(64, 0xee));
  EXPECT_TRUE(node(1).closed.empty());
}

TEST_F(ReadBalanceTest, ALostConnectionIsReadHereAtOnce) {
  make_balanced(2, Kind::prefer_remote);
  auto id = ask_in_vain();
  disconnect(1, 2);
  EXPECT_EQ(node(1).pending(Disk::home_read), 1u);
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_TRUE(all(1, 3));
}

TEST_F(ReadBalanceTest, AMemberAnswersOnceItHasCommittedAsMuch) {
  make_balanced(2, Kind::prefer_remote);
  lose_answers();  // to questions that replica 1 has not asked
  ReadBlocks question{status(node(1)).epoch, 1, Lba{5}, 1, status(node(1)).commit + 1};
  node(2).input(1, question);
  while (node(2).complete_one()) {
  }
  EXPECT_TRUE(said<BlocksRead>(2).empty());
  node(2).input(1, ReadBlocks{question.epoch, 2, Lba{5}, 1, status(node(1)).commit});
  fill(1, 5, 6, 8);
  auto answers = said<BlocksRead>(2);
  ASSERT_GE(answers.size(), 1u);
  bool answered = false;
  for (const BlocksRead& a : answers)
    if (a.seq == 1) {
      answered = true;
      EXPECT_EQ(a.content, filled(block_size, 8));
    }
  EXPECT_TRUE(answered);
}

TEST_F(ReadBalanceTest, OnlyMembersAreAsked) {
  make_balanced(2, Kind::prefer_remote);
  node(1).step(PeerDown{2});
  node(1).step(PeerUp{2, true, false});
  node(2).step(PeerDown{1});
  node(2).step(PeerUp{1});
  exchange();
  read(5);
  EXPECT_TRUE(said<ReadBlocks>(1).empty()) << "an older release";
  exchange();
  disconnect(1, 2);
  lose_disk(2);
  node(2).held = [](Disk kind) { return kind == Disk::home_write; };
  connect(1, 2);
  exchange();
  ASSERT_TRUE(peer(2).sync_target);
  read(6);
  EXPECT_TRUE(said<ReadBlocks>(1).empty()) << "a replica that is being filled";
}

TEST_F(ReadBalanceTest, AFollowerIsNotAsked) {
  nodes.clear();
  for (ReplicaId id = 1; id <= 3; ++id) {
    Config c = config_of(id, 3);
    for (PeerConfig& p : c.peers)
      if (id == 3 || p.id == 3) p.protocol = Protocol::A;
    nodes.push_back(std::make_unique<Shell>(ShellOptions{.replica = id, .config = c, .seed = id}));
  }
  delivered.assign(3, 0);
  connect_all();
  exchange();
  ASSERT_TRUE(promote(1)->ok);
  fill(1, 0, 300, 3);
  for (ReplicaId id = 1; id <= 3; ++id) checkpoint(id);
  set(Kind::round_robin);
  for (std::uint64_t i = 0; i < 7; ++i) read(10 + i);
  for (std::size_t i = 0; i < node(1).sent.size(); ++i)
    if (std::holds_alternative<ReadBlocks>(node(1).sent[i])) {
      EXPECT_EQ(node(1).sent_to[i], 2u);
    }
  EXPECT_EQ(said<ReadBlocks>(1).size(), 3u);
  exchange();
}

// The member reads the block, and writes newer content home, before its read ends.
TEST_F(ReadBalanceTest, AMemberReadsAgainWhatItHasWrittenHomeMeanwhile) {
  make_balanced(2, Kind::prefer_remote);
  node(2).reads_at_once = true;
  node(2).held = [](Disk kind) { return kind == Disk::home_read; };
  ReadBlocks question{status(node(1)).epoch, 1, Lba{5}, 1, status(node(1)).commit};
  node(2).input(1, question);
  ASSERT_EQ(node(2).pending(Disk::home_read), 1u);
  fill(1, 5, 6, 9);
  checkpoint(1);
  node(1).step(CheckpointNow{});
  exchange();
  checkpoint(2);
  EXPECT_TRUE(said<BlocksRead>(2).empty());
  node(2).held = nullptr;
  node(2).settle();
  ASSERT_EQ(said<BlocksRead>(2).size(), 1u);
  EXPECT_EQ(said<BlocksRead>(2)[0].content, filled(block_size, 9));
  EXPECT_GT(said<BlocksRead>(2)[0].as_of, question.after);
}

TEST_F(ReadBalanceTest, AReplicaOutsideTheSetDeclines) {
  make_promoted(1, 2, OnPeerLoss::go_on);
  fill(1, 0, 10, 3);
  disconnect(1, 2);
  fill(1, 0, 10, 4);  // without replica 2
  lost = [](ReplicaId to, const PeerMessage& m) {
    return to == 1 && std::holds_alternative<Ack>(m);  // so it does not become a member again
  };
  connect(1, 2);
  exchange();
  node(2).input(1, ReadBlocks{status(node(1)).epoch, 1, Lba{5}, 1, {}});
  exchange();
  ASSERT_EQ(said<BlocksRead>(2).size(), 1u);
  EXPECT_TRUE(said<BlocksRead>(2)[0].blocks == 0);
}

TEST_F(ReadBalanceTest, APeerThatDoesNotKeepToTheProtocolIsRefused) {
  for (int fault = 0; fault < 4; ++fault) {
    make_balanced(2, Kind::prefer_remote);
    lost = nullptr;
    ask_in_vain();
    BlocksRead m = said<BlocksRead>(2)[0];
    if (fault == 0) m.seq = 77;
    if (fault == 1) m.blocks = 2, m.content.resize(2 * block_size);
    if (fault == 2) m.epoch.counter++;
    ReplicaId at = 1;
    if (fault < 3) {
      node(1).input(2, m);
    } else {
      at = 2;
      node(2).input(1, ReadBlocks{m.epoch, 2, Lba{node(2).data.size() / block_size - 1}, 2, {}});
    }
    EXPECT_EQ(node(at).closed.size(), 1u) << fault;
  }
}

TEST_F(ReadBalanceTest, APrimaryThatIsLostReadsHere) {
  make_balanced(2, Kind::prefer_remote);
  auto id = ask_in_vain();
  node(1).step(Detach{});
  exchange();
  EXPECT_TRUE(ended(id)) << "as any read in flight";
  EXPECT_TRUE(all(1, 3));
}

TEST_F(ReadBalanceTest, ADemotionAwaitsTheAnswers) {
  make_balanced(2, Kind::prefer_remote);
  auto id = ask_in_vain();
  node(1).step(Demote{7});
  exchange();
  EXPECT_EQ(status(node(1)).role, Role::primary);
  node(1).pass_time(patience);
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_EQ(status(node(1)).role, Role::secondary);
  node(1).input(2, said<BlocksRead>(2)[0]);
  EXPECT_TRUE(node(1).closed.empty()) << "a late answer";
}

// ---- policies

TEST_F(ReadBalanceTest, ThePolicyChangesWhileItRuns) {
  make_balanced(3, Kind::prefer_local);
  read(5);
  EXPECT_TRUE(said<ReadBlocks>(1).empty());
  exchange();
  set(Kind::round_robin);
  for (std::uint64_t i = 0; i < 7; ++i) read(10 + i);
  EXPECT_EQ(node(1).pending(Disk::home_read), 3u) << "the first, and every third of the others";
  std::multiset<ReplicaId> asked;
  for (std::size_t i = 0; i < node(1).sent.size(); ++i)
    if (std::holds_alternative<ReadBlocks>(node(1).sent[i])) asked.insert(node(1).sent_to[i]);
  EXPECT_EQ(asked.count(2), 2u);
  EXPECT_EQ(asked.count(3), 2u);
}

TEST_F(ReadBalanceTest, StripesGoByTheAddress) {
  make_balanced(2, Kind::striped, 8);
  auto id = read(0, 40);
  EXPECT_EQ(node(1).pending(Disk::home_read), 3u) << "stripes 0, 2 and 4";
  auto asked = said<ReadBlocks>(1);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].lba, Lba{8});
  EXPECT_EQ(asked[1].lba, Lba{24});
  EXPECT_EQ(asked[1].blocks, 8u);
  exchange();
  EXPECT_TRUE(ended(id));
  EXPECT_TRUE(all(40, 3));
}

// A question to a member takes longer than a read of an idle disk.
TEST_F(ReadBalanceTest, OneReadAtATimeStaysHere) {
  for (Kind kind : {Kind::round_robin, Kind::striped, Kind::least_pending, Kind::when_congested_remote}) {
    make_balanced(2, kind, 8);
    for (std::uint64_t i = 0; i < 8; ++i) {
      auto id = read(i * 8, 8);
      exchange();
      EXPECT_TRUE(ended(id));
    }
    EXPECT_TRUE(said<ReadBlocks>(1).empty());
  }
}

TEST_F(ReadBalanceTest, AReadOfTwoStripesIsSharedAtOnce) {
  make_balanced(2, Kind::striped, 8);
  read(7, 2);
  EXPECT_EQ(node(1).pending(Disk::home_read), 1u);
  EXPECT_EQ(said<ReadBlocks>(1).size(), 1u);
}

// Stripes 1 and 2 are those of the two members.
TEST_F(ReadBalanceTest, EachStripeOfAReadGoesByItsAddress) {
  make_balanced(3, Kind::striped, 8);
  read(15, 4);
  EXPECT_EQ(node(1).pending(Disk::home_read), 0u);
  EXPECT_EQ(said<ReadBlocks>(1).size(), 2u);
  EXPECT_NE(node(1).sent_to.at(0), node(1).sent_to.at(1));
}

TEST_F(ReadBalanceTest, LeastPendingGoesByTheQueues) {
  make_balanced(2, Kind::least_pending);
  node(1).held = [](Disk kind) { return kind == Disk::home_read; };
  read(5, 8);
  EXPECT_EQ(node(1).pending(Disk::home_read), 1u);
  read(20);
  read(30);
  EXPECT_EQ(said<ReadBlocks>(1).size(), 2u);
  read(40, 8);
  EXPECT_EQ(said<ReadBlocks>(1).size(), 3u);
  read(50);
  EXPECT_EQ(node(1).pending(Disk::home_read), 2u);
}

TEST_F(ReadBalanceTest, WithoutCongestionEverythingIsReadHere) {
  make_balanced(2, Kind::when_congested_remote);
  for (int i = 0; i < 50; ++i) {
    auto id = read(5 + i);
    node(1).pass_time(std::chrono::microseconds(100));
    exchange();
    EXPECT_TRUE(ended(id));
  }
  EXPECT_TRUE(said<ReadBlocks>(1).empty());
}

// The disk here takes 10 ms for a read, whatever its queue. The member answers within 1 ms.
TEST_F(ReadBalanceTest, ACongestedDiskIsRelieved) {
  make_balanced(2, Kind::when_congested_remote);
  int asked = 0;
  for (int round = 0; round < 20; ++round) {
    node(1).held = [](Disk kind) { return kind == Disk::home_read; };
    for (int i = 0; i < 16; ++i) read(i * 10);
    asked = static_cast<int>(said<ReadBlocks>(1).size());
    node(1).pass_time(std::chrono::milliseconds(1));
    exchange();
    node(1).pass_time(std::chrono::milliseconds(9));
    node(1).held = nullptr;
    exchange();
    node(1).sent.clear(), node(1).sent_to.clear();
    delivered[0] = 0;
  }
  EXPECT_GE(asked, 8);
  EXPECT_LE(asked, 13) << "the disk here goes on";
}

}  // namespace twinloft::repl::core
