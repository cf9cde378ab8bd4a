// After one error, a disk is never trusted again, even if later operations succeed.
#include <gtest/gtest.h>

#include <cerrno>

#include "shell.h"

namespace twinloft::repl::core {
namespace {

using Bytes = std::vector<std::byte>;

struct Failing : testing::TestWithParam<Disk> {
  Shell shell{{.role = Role::primary, .config = alone()}};
  Bytes in = filled(block_size, 1);

  void fail_once(Disk kind) {
    shell.fault = [kind, failed = false](Disk ends) mutable {
      if (ends != kind || failed) return 0;
      failed = true;
      return EIO;
    };
  }
  // Starts an operation of that kind.
  std::uint64_t provoke() {
    shell.submit(ClientOp::write, 0, block_size, in.data());
    shell.submit(ClientOp::trim, 8 * block_size, 8 * block_size);
    auto flush = shell.submit(ClientOp::flush);
    shell.step(CheckpointNow{});
    shell.settle();
    shell.step(CheckpointNow{});
    shell.settle();
    return flush;
  }
  void expect_failed_for_ever() {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(shell.done.at(shell.submit(ClientOp::write, 4096, block_size, in.data())), EIO);
      EXPECT_EQ(shell.done.at(shell.submit(ClientOp::write, 4097, 5, in.data(), true)), EIO);
      EXPECT_EQ(shell.done.at(shell.submit(ClientOp::trim, 0, block_size)), EIO);
      EXPECT_EQ(shell.done.at(shell.submit(ClientOp::write_zeroes, 0, 100)), EIO);
      EXPECT_EQ(shell.done.at(shell.submit(ClientOp::flush)), EIO);
      shell.settle();
      shell.pass_time(std::chrono::seconds(10));
    }
    EXPECT_TRUE(shell.core->status().failed);
    EXPECT_NE(shell.core->status().failure.find("Input/output error"), std::string::npos)
        << shell.core->status().failure;
  }
};

TEST_P(Failing, FailsEveryLaterWriteAndFlush) {
  shell.settle();
  fail_once(GetParam());
  auto flush = provoke();
  EXPECT_TRUE(shell.core->status().failed);
  bool promised = GetParam() != Disk::journal_write && GetParam() != Disk::superblock;
  EXPECT_EQ(shell.done.at(flush), promised ? 0 : EIO);
  expect_failed_for_ever();
  EXPECT_EQ(
      std::count_if(shell.notices.begin(), shell.notices.end(),
                    [](const std::string& n) { return n.find("all writes fail") != std::string::npos; }),
      1);
}

TEST_P(Failing, ReadsStillReturnWhatWasWritten) {
  shell.settle();
  fail_once(GetParam());
  provoke();
  Bytes out(block_size);
  auto read = shell.submit(ClientOp::read, 0, block_size, out.data());
  shell.settle();
  EXPECT_EQ(shell.done.at(read), 0);
  EXPECT_EQ(out, in);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Failing,
                         testing::Values(Disk::journal_write, Disk::home_write, Disk::home_zero,
                                         Disk::home_sync, Disk::superblock));

using Failure = Failing;

TEST_F(Failure, EverythingThatWaitsIsAnswered) {
  shell.settle();
  shell.held = [](Disk kind) { return kind == Disk::home_read; };
  auto fill = shell.submit(ClientOp::write, 100, 50, in.data());  // waits for the old content of its block
  auto flush = shell.submit(ClientOp::flush);
  EXPECT_TRUE(shell.is_done(flush)) << "the write was not complete when it was submitted";
  std::vector<std::uint64_t> waiting;
  for (std::uint64_t i = 1; i < 10; ++i)
    waiting.push_back(shell.submit(ClientOp::write, i * block_size, block_size, in.data(), true));
  waiting.push_back(shell.submit(ClientOp::flush));
  fail_once(Disk::journal_write);
  shell.settle();
  for (auto id : waiting) EXPECT_EQ(shell.done.at(id), EIO);
  EXPECT_FALSE(shell.is_done(fill)) << "its memory is still in use by the disk";
  shell.held = nullptr;
  shell.settle();
  EXPECT_EQ(shell.done.at(fill), EIO);
  expect_failed_for_ever();
}

TEST_F(Failure, StalledWritesFailToo) {
  Shell full({.role = Role::primary, .config = alone(), .volume_blocks = 8192});
  full.held = [](Disk kind) { return kind == Disk::home_write; };
  Bytes big = filled(1 << 20, 1);
  std::vector<std::uint64_t> writes;
  for (std::uint64_t i = 0; i < 20; ++i) {
    writes.push_back(full.submit(ClientOp::write, i << 20, 1 << 20, big.data()));
    full.settle();
  }
  ASSERT_FALSE(full.is_done(writes.back()));
  full.held = nullptr;
  full.fault = [](Disk kind) { return kind == Disk::home_write ? EIO : 0; };
  full.settle();
  EXPECT_EQ(full.done.at(writes.back()), EIO);
  EXPECT_EQ(full.done.size(), writes.size());
}

TEST_F(Failure, TheTailStaysWhereASyncFailed) {
  shell.settle();
  fail_once(Disk::home_sync);
  provoke();
  EXPECT_EQ(shell.core->status().tail, Lsn{1}) << "only the epoch's record has no blocks for the data area";
  EXPECT_GT(shell.core->status().commit, Lsn{1});
}

TEST_F(Failure, AFailedReadIsAnErrorOfThatRequestAlone) {
  shell.settle();
  Bytes out(3 * block_size);
  shell.fault = [](Disk kind) { return kind == Disk::home_read ? EIO : 0; };
  auto aligned = shell.submit(ClientOp::read, 0, block_size, out.data());
  auto unaligned = shell.submit(ClientOp::read, 77, 5000, out.data());
  auto part = shell.submit(ClientOp::write, 8192 + 77, 5000, in.data());
  shell.settle();
  EXPECT_EQ(shell.done.at(aligned), EIO);
  EXPECT_EQ(shell.done.at(unaligned), EIO);
  EXPECT_EQ(shell.done.at(part), EIO) << "the rest of its block is unknown";
  shell.fault = nullptr;
  EXPECT_FALSE(shell.core->status().failed);
  auto write = shell.submit(ClientOp::write, 0, block_size, in.data());
  auto flush = shell.submit(ClientOp::flush);
  shell.settle();
  EXPECT_EQ(shell.done.at(write), 0);
  EXPECT_EQ(shell.done.at(flush), 0);
  EXPECT_EQ(shell.reads.used(), 0u);
}

TEST(FailedDevice, ADemotionOfAFailedDeviceIsAnswered) {
  Shell shell({.role = Role::primary, .config = alone()});
  shell.settle();
  Bytes in = filled(block_size, 1);
  shell.fault = [](Disk ends) { return ends == Disk::journal_write ? EIO : 0; };
  shell.submit(ClientOp::write, 0, block_size, in.data());
  shell.step(Demote{7});
  EXPECT_TRUE(shell.commands.empty());
  shell.settle();
  ASSERT_EQ(shell.commands.size(), 1u);
  EXPECT_FALSE(shell.commands[0].ok);
  EXPECT_NE(shell.commands[0].text.find("Cannot demote: the device has failed"), std::string::npos)
      << shell.commands[0].text;
  EXPECT_EQ(shell.core->status().role, Role::primary);
  shell.step(Demote{8});
  ASSERT_EQ(shell.commands.size(), 2u) << "a repeated request is answered at once";
  EXPECT_FALSE(shell.commands[1].ok);
}

}  // namespace
}  // namespace twinloft::repl::core
