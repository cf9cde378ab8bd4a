// Adding a ublk device, and the requests of its queue.
#include "ublk_fake.h"

namespace twinloft::repl::ublk {
namespace {

using ports::IoOp;
using uapi::Control, uapi::Op;

TEST_F(UblkTest, TheFirstDriverIsSpokenToByPlainNumbers) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready) << ready->error().message;
  EXPECT_EQ(**ready, "/dev/ublkb0");
  EXPECT_EQ(device->device(), "/dev/ublkb0");
  EXPECT_EQ(std::filesystem::read_symlink(link()), "/dev/ublkb0");
  for (std::uint32_t op : driver->opcodes)
    EXPECT_TRUE(op <= 0xff || op == uapi::encoded(Control::get_features)) << "only the probe may be encoded";
  EXPECT_TRUE(driver->opcodes.contains(uapi::plain(uapi::Io::fetch)));
  EXPECT_TRUE(stop_and_wait());
}

TEST_F(UblkTest, ADriverWithoutPlainNumbersIsSpokenToInIoctlEncoding) {
  driver->knows_plain = false;
  driver->knows_encoded = driver->knows_del_async = true;
  start_and_wait();
  ASSERT_TRUE(ready && *ready) << ready->error().message;
  auto data = filled(4096, 7);
  EXPECT_EQ(io(describe(Op::write, 0, 4096), data), 4096);
  EXPECT_TRUE(stop_and_wait());
  for (std::uint32_t op : driver->opcodes) EXPECT_GT(op, 0xffu);
  EXPECT_TRUE(driver->opcodes.contains(uapi::encoded(Control::del_dev_async)));
  EXPECT_FALSE(driver->exists(0));
}

TEST_F(UblkTest, TheDeviceIsADiskWithAVolatileCache) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  const auto& p = driver->models.at(0).params;
  EXPECT_EQ(p.len, sizeof p);
  EXPECT_EQ(p.types, uapi::params_basic | uapi::params_discard);
  EXPECT_EQ(p.basic.attributes, uapi::attribute_volatile_cache | uapi::attribute_fua);
  EXPECT_EQ(p.basic.logical_block_shift, 12);
  EXPECT_EQ(p.basic.physical_block_shift, 12);
  EXPECT_EQ(p.basic.max_sectors, io_bytes / 512);
  EXPECT_EQ(p.basic.dev_sectors, target.bytes.size() / 512);
  EXPECT_EQ(p.discard.granularity, 4096u);
  EXPECT_EQ(p.discard.max_segments, 1);
  EXPECT_GT(p.discard.max_discard_sectors, 0u);
  EXPECT_GT(p.discard.max_write_zeroes_sectors, 0u);
  const auto& info = driver->models.at(0).info;
  EXPECT_EQ(info.queues, 1);
  EXPECT_EQ(info.queue_depth, depth);
  EXPECT_EQ(info.max_io_bytes, io_bytes);
  EXPECT_EQ(info.pid, ::getpid());
}

TEST_F(UblkTest, EveryOperationReachesTheTarget) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  auto data = filled(io_bytes, 0x5a);
  EXPECT_EQ(io(describe(Op::write, 8192, io_bytes), data), static_cast<int>(io_bytes));
  EXPECT_EQ(target.seen.back().op, IoOp::write);
  EXPECT_EQ(target.seen.back().offset, 8192u);
  EXPECT_EQ(target.seen.back().length, io_bytes);
  EXPECT_FALSE(target.seen.back().fua);

  EXPECT_EQ(io(describe(Op::read, 8192, io_bytes), {}, 1), static_cast<int>(io_bytes));
  EXPECT_EQ(driver->slot(0, 1).read, data);

  EXPECT_EQ(io(describe(Op::write, 0, 4096, uapi::flag_fua), filled(4096, 1)), 4096);
  EXPECT_TRUE(target.seen.back().fua);

  EXPECT_EQ(io(describe(Op::flush, 0, 0)), 0);
  EXPECT_EQ(target.seen.back().op, IoOp::flush);

  EXPECT_EQ(io(describe(Op::discard, 8192, 4096)), 0);
  EXPECT_EQ(target.seen.back().op, IoOp::trim);
  EXPECT_EQ(target.seen.back().length, 4096u);

  EXPECT_EQ(io(describe(Op::write_zeroes, 12288, target.bytes.size() - 12288, uapi::flag_fua)), 0);
  EXPECT_EQ(target.seen.back().op, IoOp::write_zeroes);
  EXPECT_EQ(target.seen.back().length, target.bytes.size() - 12288);
  EXPECT_TRUE(target.seen.back().fua);

  EXPECT_EQ(io(describe(Op::read, 8192, 8192), {}, 2), 8192);
  EXPECT_EQ(driver->slot(0, 2).read, filled(8192, 0));
  EXPECT_EQ(device->counters().requests, 7u);
  EXPECT_EQ(device->counters().errors, 0u);
}

TEST_F(UblkTest, RequestsEndInAnyOrderAndErrorsAreToldAsTheyAre) {
  target.immediate = false;
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  for (unsigned tag = 0; tag < depth; ++tag)
    driver->request(0, tag, describe(Op::write, tag * 4096, 4096),
                    filled(4096, static_cast<unsigned char>(tag + 1)));
  run_until([&] { return target.waiting.size() == depth; });
  EXPECT_EQ(device->in_flight(), depth);
  // Each request has its own memory.
  std::reverse(target.waiting.begin(), target.waiting.end());
  target.complete_first();
  target.complete_first(ENOSPC);
  target.complete_first();
  target.complete_first(EIO);
  run_until([&] { return driver->result(0, 0).has_value(); });
  EXPECT_EQ(driver->result(0, 3), 4096);
  EXPECT_EQ(driver->result(0, 2), -ENOSPC);
  EXPECT_EQ(driver->result(0, 1), 4096);
  EXPECT_EQ(driver->result(0, 0), -EIO);
  EXPECT_EQ(target.bytes[3 * 4096], std::byte{4});
  EXPECT_EQ(target.bytes[1 * 4096], std::byte{2});
  EXPECT_EQ(device->in_flight(), 0u);
  EXPECT_EQ(device->counters().errors, 2u);
}

TEST_F(UblkTest, ATagIsUsedAgainAndAgain) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  for (unsigned i = 0; i < 50; ++i) {
    auto data = filled(4096, static_cast<unsigned char>(i));
    ASSERT_EQ(io(describe(Op::write, i * 4096, 4096), data, i % 2), 4096);
    ASSERT_EQ(target.bytes[i * 4096 + 4095], std::byte(i));
  }
}

TEST_F(UblkTest, WhatWouldLeadOutsideIsRefused) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  std::size_t seen = target.seen.size();
  std::uint64_t sectors = target.bytes.size() / 512;
  EXPECT_EQ(io({0, io_bytes / 512 + 1, 0, 0}), -EINVAL) << "more than the buffer holds";
  EXPECT_EQ(io({1, io_bytes / 512 + 1, 0, 0}), -EINVAL);
  EXPECT_EQ(io({0, 0xffffffff, 0, 0}), -EINVAL);
  EXPECT_EQ(io({0, 0, 0, 0}), -EINVAL) << "nothing";
  EXPECT_EQ(io({0, 8, sectors, 0}), -EIO) << "behind the end";
  EXPECT_EQ(io({1, 8, sectors - 7, 0}), -EIO) << "across the end";
  EXPECT_EQ(io({1, 8, 0xffffffffffffffff, 0}), -EIO);
  EXPECT_EQ(io({1, 8, 1ull << 55, 0}), -EIO) << "an offset that overflows to 0 bytes";
  EXPECT_EQ(io({3, 8, sectors - 7, 0}), -EIO);
  EXPECT_EQ(io({5, 0xffffffff, 0, 0}), -EINVAL);
  EXPECT_EQ(io({4, 8, 0, 0}), -EOPNOTSUPP) << "write same";
  EXPECT_EQ(io({200, 8, 0, 0}), -EOPNOTSUPP);
  EXPECT_EQ(target.seen.size(), seen);
  EXPECT_EQ(io({0, 8, sectors - 8, 0}), 4096) << "the last block";
}

TEST_F(UblkTest, CompletionsOfTagsThatTheKernelDoesNotHaveAreIgnored) {
  target.immediate = false;
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->complete_raw(0, {depth, 0});
  driver->complete_raw(0, {0xffffffffffffffff, 0});
  driver->request(0, 1, describe(Op::flush, 0, 0));
  run_until([&] { return target.waiting.size() == 1; });
  driver->complete_raw(0, {1, 0});  // the target already has the request
  settle();
  EXPECT_EQ(target.waiting.size(), 1u);
  target.complete_first();
  run_until([&] { return driver->result(0, 1).has_value(); });
  EXPECT_EQ(driver->result(0, 1), 0);
}

TEST_F(UblkTest, AQuestionThatNobodyOfferedIsAnErrorOfThatRequest) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  std::size_t seen = target.seen.size();
  driver->request(0, 0, describe(Op::write, 0, 4096), {}, 1);  // UBLK_IO_RES_NEED_GET_DATA
  run_until([&] { return driver->result(0, 0).has_value(); });
  EXPECT_EQ(driver->result(0, 0), -EIO);
  EXPECT_EQ(target.seen.size(), seen);
}

TEST_F(UblkTest, ASubmissionThatTheKernelPutsOffIsMadeAgain) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->with([&] { return driver->submit_errors = 3; });
  EXPECT_EQ(io(describe(Op::flush, 0, 0)), 0);
  EXPECT_EQ(driver->submit_errors, 0);
}

}  // namespace
}  // namespace twinloft::repl::ublk
