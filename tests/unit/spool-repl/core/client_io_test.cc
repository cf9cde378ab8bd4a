// Client requests on a primary, without peers, membership or other logs. The test sets the state of the term.
#include "client_io.h"

#include "primary_parts.h"

namespace twinloft::repl::core {
namespace {

struct ClientIoTest : testing::Test {
  ClientIoTest() { make(alone()); }
  void make(Config config) {
    io.reset();
    parts = std::make_unique<PrimaryParts>(std::move(config));
    parts->term.begin({1, {}}, set_of(1) | set_of(2), {});
    parts->term.note_logged(parts->volume.log.end());
    balance = std::make_unique<ReadBalance>(parts->volume, parts->peers, parts->term);
    io = std::make_unique<ClientIo>(parts->volume, parts->checkpointer, parts->repair, pace, parts->term,
                                    *balance);
  }
  std::uint64_t submit(ClientOp op, std::uint64_t offset = 0, std::uint32_t length = 0,
                       std::byte* data = nullptr) {
    io->submit({op, false, offset, length, data, ++last_id});
    io->check_invariants();
    return last_id;
  }
  std::uint64_t write(std::uint64_t lba, int value) {
    content.emplace_back(block_size, std::byte(value));
    return submit(ClientOp::write, lba * block_size, block_size, content.back().data());
  }
  // The errno of the request; nullopt: no answer yet.
  std::optional<int> result(std::uint64_t id) {
    for (const Complete& c : out().completions)
      if (c.id == id) return c.error;
    return std::nullopt;
  }
  void end_home_reads(int error, int value = 0) {
    for (const HomeRead& r : std::exchange(out().home_reads, {})) {
      for (const IoPiece& piece : r.pieces) std::memset(piece.data, value, piece.bytes);
      if (kind_of(r.token) == TokenKind::client_read)
        io->on_client_read(number_of(r.token), error);
      else
        io->on_fill_read(number_of(r.token), error);
    }
    io->check_invariants();
  }
  // Sets the digests of blocks in the data area to those of this content.
  void at_home(std::uint64_t lba, int value) {
    std::vector<std::byte> block(block_size, std::byte(value));
    parts->volume.digests.put(Lba{lba}, block.data());
  }
  Output& out() { return parts->volume.out; }
  Log& log() { return parts->volume.log; }

  Pace pace{Duration(0), 1};
  std::unique_ptr<PrimaryParts> parts;
  std::unique_ptr<ReadBalance> balance;
  std::unique_ptr<ClientIo> io;
  std::deque<std::vector<std::byte>> content;
  std::uint64_t last_id = 0;
};

TEST_F(ClientIoTest, AWriteIsAnsweredAtOnceAndAFlushWhenItsRecordIsAcknowledged) {
  EXPECT_EQ(result(write(3, 1)), 0);
  std::uint64_t flush = submit(ClientOp::flush);
  EXPECT_FALSE(io->settled());
  io->seal_if_due();
  ASSERT_EQ(out().journal_writes.size(), 1u);
  io->answer_flushes();
  EXPECT_FALSE(result(flush)) << "the record is durable on no replica";
  parts->make_durable();
  io->commit(log().end());
  io->acknowledge(log().end());
  io->answer_flushes();
  EXPECT_EQ(result(flush), 0);
  EXPECT_TRUE(io->settled());
  EXPECT_EQ(parts->volume.committed.data_blocks(), 1u);
}

TEST_F(ClientIoTest, AnAcknowledgementAnswersTheFlushesBeforeItAndNoOthers) {
  write(3, 1);
  std::uint64_t first = submit(ClientOp::flush);
  io->seal_if_due();
  RecordNo end = log().end();
  write(4, 2);
  std::uint64_t second = submit(ClientOp::flush);
  io->seal_if_due();
  parts->make_durable();
  io->acknowledge(end);
  io->answer_flushes();
  EXPECT_EQ(result(first), 0);
  EXPECT_FALSE(result(second));
}

TEST_F(ClientIoTest, AFlushWithNothingToWaitForIsAnsweredAtOnce) {
  EXPECT_EQ(result(submit(ClientOp::flush)), 0);
}

TEST_F(ClientIoTest, WritesWaitForAMemberThatIsAwayAndReadsDoNot) {
  make(with_peers({2}));
  at_home(7, 0);
  EXPECT_TRUE(parts->term.suspended());
  std::uint64_t waits = write(3, 1);
  EXPECT_FALSE(result(waits));
  EXPECT_TRUE(io->any_waits());
  std::vector<std::byte> back(block_size);
  std::uint64_t reads = submit(ClientOp::read, 7 * block_size, block_size, back.data());
  end_home_reads(0);
  EXPECT_EQ(result(reads), 0);
  parts->stream(2);
  io->retry_stalled();
  EXPECT_EQ(result(waits), 0);
}

TEST_F(ClientIoTest, WritesWaitForTheRecordOfTheEpoch) {
  parts->term.begin({2, {}}, set_of(1), {});
  std::uint64_t waits = write(3, 1);
  EXPECT_FALSE(result(waits));
  EXPECT_FALSE(io->seal());
  parts->term.note_logged(log().end());
  io->retry_stalled();
  EXPECT_EQ(result(waits), 0);
}

TEST_F(ClientIoTest, AReadGetsTheNewestContentOfMemory) {
  write(3, 1);
  write(3, 2);
  std::vector<std::byte> back(block_size);
  EXPECT_EQ(result(submit(ClientOp::read, 3 * block_size, block_size, back.data())), 0);
  EXPECT_EQ(back[0], std::byte{2});
  EXPECT_TRUE(out().home_reads.empty());
}

TEST_F(ClientIoTest, APartOfABlockIsFilledUpWithWhatWasThere) {
  at_home(3, 9);
  std::vector<std::byte> some(10, std::byte{1}), back(block_size);
  std::uint64_t id = submit(ClientOp::write, 3 * block_size + 5, 10, some.data());
  ASSERT_EQ(out().home_reads.size(), 1u);
  EXPECT_FALSE(result(id));
  EXPECT_FALSE(io->nothing_under_way());
  end_home_reads(0, 9);
  EXPECT_EQ(result(id), 0);
  submit(ClientOp::read, 3 * block_size, block_size, back.data());
  EXPECT_EQ(back[4], std::byte{9});
  EXPECT_EQ(back[5], std::byte{1});
  EXPECT_EQ(back[15], std::byte{9});
  EXPECT_EQ(parts->reads.used(), 0u);
}

TEST_F(ClientIoTest, AReadThatFailsWaitsForARepairAndFailsWithIt) {
  std::vector<std::byte> back(block_size);
  std::uint64_t id = submit(ClientOp::read, 3 * block_size, block_size, back.data());
  end_home_reads(EIO);
  EXPECT_FALSE(result(id));
  EXPECT_EQ(io->waiting_requests(), 1u);
  EXPECT_FALSE(io->on_repaired({99, true})) << "no request waits for it";
  EXPECT_TRUE(io->on_repaired({1, true}));
  io->retry_stalled();
  ASSERT_EQ(out().home_reads.size(), 1u) << "repeated from the beginning";
  end_home_reads(EIO);
  EXPECT_TRUE(io->on_repaired({2, false}));
  EXPECT_EQ(result(id), EIO);
  EXPECT_TRUE(io->nothing_under_way());
}

TEST_F(ClientIoTest, AReadIsNotRepairedForEver) {
  std::vector<std::byte> back(block_size);
  std::uint64_t id = submit(ClientOp::read, 3 * block_size, block_size, back.data());
  Repair::Ticket ticket = 0;
  for (unsigned i = 0; i < 4; ++i) {
    end_home_reads(EIO);
    ASSERT_FALSE(result(id)) << i;
    ASSERT_TRUE(io->on_repaired({++ticket, true}));
    io->retry_stalled();
  }
  end_home_reads(EIO);
  EXPECT_EQ(result(id), EIO);
}

TEST_F(ClientIoTest, NothingIsTakenOnceAnotherPrimaryHasTakenOver) {
  write(3, 1);
  std::uint64_t flush = submit(ClientOp::flush);
  parts->term.lose();
  EXPECT_EQ(result(write(4, 1)), EIO);
  io->fail_everything();
  EXPECT_EQ(result(flush), EIO);
  EXPECT_TRUE(io->no_flush_waits());
  EXPECT_TRUE(io->nothing_under_way());
}

TEST_F(ClientIoTest, ARecordWithoutDataDoesNotTakeTheSerialOfTheOpenBatch) {
  std::uint64_t first = io->serial_without_data();
  EXPECT_EQ(io->serial_without_data(), first + 1);
  write(3, 1);
  EXPECT_EQ(io->serial_without_data(), io->serial_without_data());
  std::uint64_t flush = submit(ClientOp::flush);
  EXPECT_FALSE(result(flush)) << "the batch is not sealed yet";
}

TEST_F(ClientIoTest, AFlushOfASuspensionDoesNotTellHowLongFlushesTake) {
  write(3, 1);
  submit(ClientOp::flush);
  auto oldest_flush = [&] { return io->waiting().since[static_cast<std::size_t>(Pace::Kind::flush)]; };
  EXPECT_EQ(oldest_flush(), parts->volume.now);
  pace.note_suspended(parts->volume.now);
  EXPECT_FALSE(oldest_flush());
  EXPECT_TRUE(io->waiting().asked);
  parts->volume.now = parts->volume.now + Duration(1);
  submit(ClientOp::flush);
  EXPECT_FALSE(oldest_flush()) << "the oldest request decides";
}

TEST_F(ClientIoTest, RequestsBeyondTheVolumeAreRefused) {
  std::vector<std::byte> some(2 * block_size);
  std::uint64_t end = PrimaryParts::volume_blocks * block_size;
  EXPECT_EQ(result(submit(ClientOp::write, end - block_size, 2 * block_size, some.data())), EINVAL);
  EXPECT_EQ(result(submit(ClientOp::write, 0, 0, nullptr)), 0);
}

}  // namespace
}  // namespace twinloft::repl::core
