// Digests at rest: a readable block with wrong content is never returned to a client, sent in a resync, or
// used for a repair.
#include <gtest/gtest.h>

#include <cerrno>

#include "resync.h"
#include "twinloft/spool-repl/format/digest.h"

namespace twinloft::repl::core {
namespace {

struct DigestsTest : BitmapTest {
  std::vector<std::byte> memory = std::vector<std::byte>(65 * block_size);
  // Aligned memory: the data area is read straight into it.
  std::byte* aligned = memory.data() +
                       (block_size - reinterpret_cast<std::uintptr_t>(memory.data()) % block_size) %
                           block_size;

  void put_wrong(ReplicaId id, std::uint64_t block, int value = 0x66) {
    std::fill_n(node(id).data.begin() + static_cast<std::ptrdiff_t>(block * block_size), block_size,
                std::byte(value));
  }
  std::uint64_t read(ReplicaId id, std::uint64_t block, std::uint64_t blocks, std::size_t shift = 0) {
    std::fill(memory.begin(), memory.end(), std::byte{0xee});
    auto request = node(id).submit(ClientOp::read, block * block_size,
                                   static_cast<std::uint32_t>(blocks * block_size), aligned + shift);
    exchange();
    return request;
  }
  bool all(std::uint64_t blocks, int value, std::size_t shift = 0) const {
    return std::all_of(aligned + shift, aligned + shift + blocks * block_size,
                       [&](std::byte b) { return b == std::byte(value); });
  }
  std::vector<Digest> on_disk(ReplicaId id) {
    auto sb = decode_superblock({node(id).journal.data(), block_size});
    std::vector<Digest> digests(sb->volume_blocks);
    for (std::uint64_t page = 0; page < digest_pages(sb->volume_blocks); ++page) {
      std::span rest = std::span(digests).subspan(page * digest_page_blocks);
      EXPECT_EQ(decode_digest_page(
                    {node(id).journal.data() + sb->digest_offset + page * block_size, block_size}, sb->volume,
                    page, rest.first(std::min<std::size_t>(rest.size(), digest_page_blocks))),
                0u);
    }
    return digests;
  }
  bool told(ReplicaId id, std::string_view text) {
    return std::any_of(node(id).notices.begin(), node(id).notices.end(),
                       [&](const std::string& n) { return n.find(text) != n.npos; });
  }
};

TEST_F(DigestsTest, AWrongBlockIsFetchedFromTheOtherReplicaAndWrittenAgain) {
  for (std::size_t shift : {0, 8}) {  // straight into the client's memory, and through scratch memory
    make_and_settle(2);
    put_wrong(1, 5);
    put_wrong(1, 6, 0);
    auto id = read(1, 4, 4, shift);
    EXPECT_EQ(node(1).done.at(id), 0);
    EXPECT_TRUE(all(4, 3, shift));
    exchange();
    EXPECT_EQ(node(1).data, node(2).data);
    EXPECT_EQ(status(node(1)).wrong_blocks, 2u);
    EXPECT_EQ(status(node(1)).repaired_blocks, 2u);
    EXPECT_TRUE(told(1, "had wrong content: repaired from replica 2"));
  }
}

TEST_F(DigestsTest, WithNobodyConnectedTheReadFails) {
  make_and_settle(2);
  disconnect(1, 2);
  put_wrong(1, 5);
  auto id = read(1, 4, 4);
  EXPECT_EQ(node(1).done.at(id), EIO);
  EXPECT_EQ(status(node(1)).unreadable_blocks, 1u);
  connect(1, 2);
  exchange();
  id = read(1, 4, 4);
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(4, 3));
}

TEST_F(DigestsTest, APartialWriteDoesNotKeepWhatIsWrong) {
  make_and_settle(2);
  put_wrong(1, 5);
  std::vector<std::byte> some(512, std::byte{0x77});
  auto id = node(1).submit(ClientOp::write, 5 * block_size + 512, 512, some.data());
  exchange();
  EXPECT_EQ(node(1).done.at(id), 0);
  node(1).submit(ClientOp::flush);
  exchange();
  checkpoint(1), checkpoint(2);
  EXPECT_EQ(node(1).data, node(2).data);
  EXPECT_EQ(node(1).data[5 * block_size], std::byte{3});
  EXPECT_EQ(node(1).data[5 * block_size + 512], std::byte{0x77});
}

// Neither in a resync nor as an answer to a peer's request.
TEST_F(DigestsTest, WhatIsWrongIsNotSpread) {
  make_and_settle(3);
  disconnect(1, 3), disconnect(2, 3);
  lose_disk(3);
  put_wrong(1, 5), put_wrong(1, 70);
  connect(1, 3), connect(2, 3);
  exchange();
  for (ReplicaId id : {1u, 2u, 3u}) checkpoint(id);
  EXPECT_EQ(node(3).data, node(2).data);
  EXPECT_EQ(node(1).data, node(2).data);

  put_wrong(1, 7), put_wrong(2, 7);
  auto id = read(1, 7, 1);
  EXPECT_EQ(node(1).done.at(id), 0) << "replica 3 has it";
  EXPECT_TRUE(all(1, 3));
  put_wrong(1, 8), put_wrong(2, 8), put_wrong(3, 8);
  id = read(1, 8, 1);
  EXPECT_EQ(node(1).done.at(id), EIO) << "no replica has it";
}

// A checkpoint writes the block during the read. The read may return the old content, which is not damage.
TEST_F(DigestsTest, AReadBesideACheckpointIsTriedAgain) {
  make_and_settle(2);
  node(1).held = [](Disk kind) { return kind == Disk::home_read; };
  node(1).reads_at_once = true;
  std::fill(memory.begin(), memory.end(), std::byte{0xee});
  auto id = node(1).submit(ClientOp::read, 5 * block_size, block_size, aligned);
  fill(1, 5, 6, 9);
  checkpoint(1);
  node(1).held = nullptr;
  exchange();
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(1, 9));
  EXPECT_EQ(status(node(1)).wrong_blocks, 0u);
  EXPECT_EQ(status(node(1)).reread_blocks, 0u);
}

// The tail does not pass a record before the digests of its blocks are durable.
TEST_F(DigestsTest, TheyAreDurableBeforeTheTailMoves) {
  make_promoted(1, 2);
  fill(1, 0, 20, 3);
  Lsn before = status(node(1)).tail;
  node(1).held = [](Disk kind) { return kind == Disk::bitmap; };
  checkpoint(1);
  EXPECT_EQ(status(node(1)).tail, before);
  EXPECT_EQ(on_disk(1)[5], digest_zeros);
  node(1).held = nullptr;
  exchange();
  EXPECT_GT(status(node(1)).tail, before);
  EXPECT_EQ(on_disk(1)[5], digest_of(Shell::volume(), Lba{5}, filled(block_size, 3)));
  EXPECT_EQ(on_disk(1)[30], digest_zeros);
}

// The blocks are home, but their digests were not stored. The start computes them from the records.
TEST_F(DigestsTest, AStartKnowsThoseOfWhatItReplays) {
  make_promoted(1, 2);
  fill(1, 0, 20, 3);
  node(1).held = [](Disk kind) { return kind == Disk::bitmap; };
  checkpoint(1);
  node(1).held = nullptr;
  restart(1);
  disconnect(1, 2), connect(1, 2);
  exchange();
  ASSERT_TRUE(promote(1)->ok);
  put_wrong(1, 5);
  auto id = read(1, 4, 4);
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(4, 3));
  checkpoint(1);
  EXPECT_EQ(on_disk(1)[5], digest_of(Shell::volume(), Lba{5}, filled(block_size, 3)));
}

// A resync discards the log. Digests that only the log can rebuild must be durable first. Here the log is
// that of a former primary, which kept it for a replica that is away: its blocks are home, and its tail has
// not moved.
TEST_F(DigestsTest, TheyOutliveTheLogThatAResyncGivesUp) {
  make_promoted(1, 3, OnPeerLoss::go_on);
  disconnect(1, 3), disconnect(2, 3);
  exchange();
  fill(1, 30, 31, 1);
  checkpoint(1);  // the tail reaches what replica 3 needs
  fill(1, 0, 20, 3);
  checkpoint(1);
  ASSERT_EQ(node(1).data[5 * block_size], std::byte{3});
  ASSERT_EQ(on_disk(1)[5], digest_zeros) << "the journal is not kept";
  node(1).step(Demote{78});
  exchange();
  disconnect(1, 2);
  ASSERT_TRUE(promote(2, true)->ok);
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 6; ++i) fill(2, 400, 528, 40 + round);
    checkpoint(2);
  }
  ASSERT_EQ(on_disk(1)[5], digest_zeros);
  connect(1, 2);
  exchange([&] { return status(node(1)).inconsistent; });
  ASSERT_TRUE(status(node(1)).inconsistent);
  EXPECT_EQ(on_disk(1)[5], digest_of(Shell::volume(), Lba{5}, filled(block_size, 3)));
  exchange();
  connect(1, 3), connect(2, 3);
  exchange();
  expect_equal();
}

// The primary has no digest of its block, so it would take anything.
TEST_F(DigestsTest, WhatIsWrongIsNoAnswer) {
  make_and_settle(2);
  auto sb = decode_superblock({node(1).journal.data(), block_size});
  ASSERT_TRUE(sb);
  std::fill_n(node(1).journal.begin() + static_cast<std::ptrdiff_t>(sb->digest_offset), sb->digest_bytes,
              std::byte{0});
  restart(1);
  disconnect(1, 2), connect(1, 2);
  exchange();
  ASSERT_TRUE(promote(1)->ok);
  node(1).unreadable = {5};
  put_wrong(2, 5, 0x55);
  auto id = read(1, 5, 1);
  EXPECT_EQ(node(1).done.at(id), EIO);
}

// The peer sends what it reads, because it has no digest of its block.
TEST_F(DigestsTest, AnAnswerThatDoesNotFitHereIsNotTaken) {
  make_and_settle(2);
  auto sb = decode_superblock({node(2).journal.data(), block_size});
  ASSERT_TRUE(sb);
  std::fill_n(node(2).journal.begin() + static_cast<std::ptrdiff_t>(sb->digest_offset), sb->digest_bytes,
              std::byte{0});
  restart(2);
  disconnect(1, 2), connect(1, 2);
  exchange();
  put_wrong(1, 5), put_wrong(2, 5, 0x55);
  auto id = read(1, 5, 1);
  EXPECT_EQ(node(1).done.at(id), EIO);
  std::fill_n(node(2).data.begin() + 5 * block_size, block_size, std::byte{3});
  id = read(1, 5, 1);
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(1, 3));
}

// The source has the same content as this disk returned. The disk may return other content at the next read,
// so the block is written again.
TEST_F(DigestsTest, WhatIsEqualByLuckIsWrittenAgain) {
  make_and_settle(2);
  begin_needless_resync();
  node(2).held = [](Disk kind) { return kind == Disk::home_write; };
  exchange();
  EXPECT_GT(node(2).pending(Disk::home_write), 0u);
  EXPECT_TRUE(status(node(2)).inconsistent);
  node(2).held = nullptr;
  exchange();
  checkpoint(2);
  EXPECT_FALSE(status(node(2)).inconsistent);
  EXPECT_EQ(node(2).data, node(1).data);
}

TEST_F(DigestsTest, ATrimmedBlockIsZeros) {
  make_and_settle(2);
  node(1).submit(ClientOp::trim, 0, 300 * block_size);
  node(1).submit(ClientOp::flush);
  exchange();
  checkpoint(1), checkpoint(2);
  EXPECT_EQ(on_disk(1)[5], digest_zeros);
  put_wrong(1, 5);
  auto id = read(1, 4, 4);
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(4, 0));
}

TEST_F(DigestsTest, AFailedWriteOfThemFailsTheDevice) {
  make_promoted(1, 2);
  fill(1, 0, 20, 3);
  node(1).fault = [](Disk kind) { return kind == Disk::bitmap ? EIO : 0; };
  checkpoint(1);
  EXPECT_TRUE(status(node(1)).failed);
}

// After an accepted loss of the last copy, content of lost records is better than a read error.
TEST_F(DigestsTest, AnAcceptedLossForgetsThem) {
  make_promoted(1, 2);
  fill(1, 0, 20, 3);
  checkpoint(1), checkpoint(2);
  for (int i = 0; i < 6; ++i) fill(1, 30, 35, 20 + i);
  ASSERT_NE(on_disk(1)[5], digest_unknown);
  fill(1, 40, 45, 50), fill(1, 40, 45, 51);
  rot(1, 50);
  node(1).step(Promote{9, true, true});
  exchange();
  ASSERT_TRUE(node(1).commands.back().ok) << node(1).commands.back().text;
  EXPECT_EQ(on_disk(1)[5], digest_unknown)
      << "the superblock already says Consistent, so the digests must be unknown on the disk";
  put_wrong(1, 5);
  auto id = read(1, 5, 1);
  EXPECT_EQ(node(1).done.at(id), 0);
  EXPECT_TRUE(all(1, 0x66));
}

}  // namespace
}  // namespace twinloft::repl::core
