// The bytes of the FUSE protocol, and an entry's way between the kernel and the volume.
#include "fuse/ring_codec.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>

#include <array>
#include <cstring>

#include "fuse/ring_flow.h"
#include "fuse/uapi.h"

namespace twinloft::repl::fuse {
namespace {

constexpr std::uint64_t mib = 1u << 20;

struct RingCodec : testing::Test {
  RingCodec() {
    file.size_bytes = 4 * mib;
    file.max_bytes = 256u << 10;
    file.underlying.st_uid = 7;
    file.underlying.st_mtim = {1000, 5};
  }
  template <class In>
  Decision ask(std::uint32_t opcode, const In& in, std::size_t payload = 0) {
    return decide(file, {opcode, std::as_bytes(std::span(&in, 1)), payload}, reply);
  }
  Decision ask(std::uint32_t opcode) { return decide(file, {opcode, {}, 0}, reply); }
  template <class Out>
  Out replied(const Decision& d) {
    EXPECT_EQ(d.kind, Decision::Kind::answer);
    EXPECT_EQ(d.error, 0);
    EXPECT_EQ(d.reply_bytes, sizeof(Out));
    Out out;
    std::memcpy(&out, reply.data(), sizeof out);
    return out;
  }
  FileFacts file;
  std::array<std::byte, reply_bytes_max> reply{};
};

fuse_write_in write_of(std::uint64_t offset, std::uint32_t size, std::uint32_t flags = 0) {
  fuse_write_in in{};
  in.offset = offset;
  in.size = size;
  in.flags = flags;
  return in;
}

TEST_F(RingCodec, tells_the_attributes_of_the_file) {
  auto out = replied<fuse_attr_out>(ask(FUSE_GETATTR, fuse_getattr_in{}));
  EXPECT_EQ(out.attr.size, 4 * mib);
  EXPECT_EQ(out.attr.mode, S_IFREG | 0600u);
  EXPECT_EQ(out.attr.ino, std::uint64_t{FUSE_ROOT_ID});
  EXPECT_EQ(out.attr.uid, 7u);
  EXPECT_EQ(out.attr.mtime, 1000u);
  EXPECT_EQ(out.attr.mtimensec, 5u);
}

TEST_F(RingCodec, opens_for_parallel_direct_writes) {
  auto out = replied<fuse_open_out>(ask(FUSE_OPEN, fuse_open_in{}));
  EXPECT_EQ(out.open_flags, std::uint32_t{FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES});
}

TEST_F(RingCodec, cuts_a_read_at_the_end) {
  fuse_read_in in{};
  in.offset = 4 * mib - 4096;
  in.size = 8192;
  Decision d = ask(FUSE_READ, in);
  EXPECT_EQ(d.kind, Decision::Kind::target);
  EXPECT_EQ(d.length, 4096u);
  in.offset = 4 * mib;
  d = ask(FUSE_READ, in);
  EXPECT_EQ(d.kind, Decision::Kind::answer);
  EXPECT_EQ(d.reply_bytes, 0u);
  in.size = file.max_bytes + 1;
  EXPECT_EQ(ask(FUSE_READ, in).error, EINVAL);
}

TEST_F(RingCodec, refuses_a_write_that_the_file_or_the_payload_does_not_hold) {
  EXPECT_EQ(ask(FUSE_WRITE, write_of(0, 4096), 4096).kind, Decision::Kind::target);
  EXPECT_EQ(ask(FUSE_WRITE, write_of(0, 8192), 4096).error, EINVAL);
  EXPECT_EQ(ask(FUSE_WRITE, write_of(4 * mib - 4096, 8192), 8192).error, ENOSPC);
  EXPECT_EQ(ask(FUSE_WRITE, write_of(0, file.max_bytes + 1), file.max_bytes + 1).error, EINVAL);
  EXPECT_EQ(ask(FUSE_WRITE, write_of(1ull << 63, 4096), 4096).error, EINVAL);
  EXPECT_EQ(replied<fuse_write_out>(ask(FUSE_WRITE, write_of(0, 0))).size, 0u);
}

TEST_F(RingCodec, a_write_with_O_DSYNC_is_durable) {
  EXPECT_FALSE(ask(FUSE_WRITE, write_of(0, 4096), 4096).fua);
  EXPECT_TRUE(ask(FUSE_WRITE, write_of(0, 4096, O_DSYNC), 4096).fua);
}

TEST_F(RingCodec, no_flush_succeeds_after_a_lost_write) {
  EXPECT_EQ(ask(FUSE_FSYNC, fuse_fsync_in{}).op, ports::IoOp::flush);
  file.write_lost = true;
  EXPECT_EQ(ask(FUSE_FSYNC, fuse_fsync_in{}).error, EIO);
}

TEST_F(RingCodec, a_long_range_comes_in_pieces) {
  file.size_bytes = 4096 * mib;
  fuse_fallocate_in in{};
  in.mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  in.offset = mib;
  in.length = 1ull << 40;
  Decision d = ask(FUSE_FALLOCATE, in);
  EXPECT_EQ(d.op, ports::IoOp::trim);
  EXPECT_EQ(d.length, range_piece_bytes);
  EXPECT_EQ(d.length + d.range_left, 4095 * mib);
  in.mode = FALLOC_FL_ZERO_RANGE;
  EXPECT_EQ(ask(FUSE_FALLOCATE, in).error, ENOSPC);
  in.length = mib;
  EXPECT_EQ(ask(FUSE_FALLOCATE, in).op, ports::IoOp::write_zeroes);
  in.mode = 0;
  EXPECT_EQ(ask(FUSE_FALLOCATE, in).error, EOPNOTSUPP);
}

TEST_F(RingCodec, the_size_cannot_be_changed) {
  fuse_setattr_in in{};
  in.valid = FATTR_SIZE | FATTR_MTIME;
  in.size = 4 * mib;
  EXPECT_EQ(ask(FUSE_SETATTR, in).error, 0);
  in.size = mib;
  EXPECT_EQ(ask(FUSE_SETATTR, in).error, EPERM);
  in.valid = FATTR_MODE;
  EXPECT_EQ(ask(FUSE_SETATTR, in).error, EPERM);
}

TEST_F(RingCodec, answers_what_expects_an_answer) {
  EXPECT_EQ(ask(FUSE_FORGET).kind, Decision::Kind::silence);
  EXPECT_EQ(ask(FUSE_INTERRUPT).kind, Decision::Kind::silence);
  EXPECT_TRUE(ask(FUSE_RELEASE).released);
  EXPECT_EQ(ask(FUSE_GETXATTR).error, ENOSYS);
  EXPECT_EQ(replied<fuse_statfs_out>(ask(FUSE_STATFS)).st.blocks, 4 * mib / 4096);
}

TEST_F(RingCodec, the_first_request_must_offer_the_ring) {
  fuse_init_in in{};
  in.major = FUSE_KERNEL_VERSION;
  in.minor = 45;
  in.flags = FUSE_INIT_EXT | FUSE_ASYNC_DIO | FUSE_MAX_PAGES | FUSE_WRITEBACK_CACHE;
  in.flags2 = uapi::over_io_uring >> 32;
  auto bytes = std::as_bytes(std::span(&in, 1));
  auto out = answer_init(bytes, {256u << 10, 128});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->flags, std::uint32_t{FUSE_INIT_EXT | FUSE_ASYNC_DIO | FUSE_MAX_PAGES});
  EXPECT_EQ(out->flags2, uapi::over_io_uring >> 32);
  EXPECT_EQ(out->max_pages, 64);
  EXPECT_EQ(out->max_write, 256u << 10);
  in.flags2 = 0;
  EXPECT_EQ(answer_init(bytes, {}).error(), EOPNOTSUPP);
  in.minor = 38;
  EXPECT_EQ(answer_init(bytes, {}).error(), EPROTO);
  EXPECT_EQ(answer_init(bytes.first(16), {}).error(), EPROTO);
}

TEST(RingList, counts_the_kernels_processors) {
  EXPECT_EQ(numbers_in_list("0-1\n"), 2u);
  EXPECT_EQ(numbers_in_list("0-3,8,10-11\n"), 7u);
  EXPECT_EQ(numbers_in_list("0"), 1u);
  EXPECT_EQ(numbers_in_list(""), 0u);
  EXPECT_EQ(numbers_in_list("3-1"), 0u);
  EXPECT_EQ(numbers_in_list("x"), 0u);
}

TEST(RingFlow, an_entry_goes_round) {
  EntryFlow flow;
  flow.give(uapi::command_register);
  EXPECT_EQ(flow.complete(0), EntryFlow::Next::serve);
  flow.give(uapi::command_commit_and_fetch);
  EXPECT_EQ(flow.complete(0), EntryFlow::Next::serve);
  EXPECT_EQ(flow.place(), EntryFlow::Place::here);
}

TEST(RingFlow, a_shortage_is_not_repeated_without_end) {
  EntryFlow flow;
  flow.give(uapi::command_register);
  ASSERT_EQ(flow.complete(0), EntryFlow::Next::serve);
  flow.give(uapi::command_commit_and_fetch);
  unsigned again = 0;
  EntryFlow::Next next;
  while ((next = flow.complete(-ENOMEM)) == EntryFlow::Next::again) {
    ASSERT_LT(++again, 1000u);
    flow.give(uapi::command_commit_and_fetch);
  }
  EXPECT_EQ(next, EntryFlow::Next::broken);
  EXPECT_EQ(flow.place(), EntryFlow::Place::gone);
}

TEST(RingFlow, a_refused_register_is_not_repeated) {
  EntryFlow flow;
  flow.give(uapi::command_register);
  EXPECT_EQ(flow.complete(-ENOMEM), EntryFlow::Next::broken);
}

TEST(RingFlow, the_end_of_the_connection_is_no_fault) {
  for (int error : {-ENOTCONN, -ECONNABORTED, -ECANCELED}) {
    EntryFlow flow;
    flow.give(uapi::command_register);
    EXPECT_EQ(flow.complete(error), EntryFlow::Next::ended);
  }
}

TEST(RingFlowDeathTest, an_entry_is_given_and_completed_once) {
  EntryFlow flow;
  EXPECT_DEATH(flow.complete(0), "completes twice");
  flow.give(uapi::command_register);
  EXPECT_DEATH(flow.give(uapi::command_commit_and_fetch), "given twice");
  EXPECT_DEATH(flow.drop(), "of the kernel is dropped");
}

}  // namespace
}  // namespace twinloft::repl::fuse
