// Requests of a FUSE ring: each is answered once, and the end waits for nothing without a limit.
#include "twinloft/spool-repl/export/ring_export.h"

#include <gtest/gtest.h>

#include <optional>

#include "manual_target.h"
#include "ring_fake.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::fuse {
namespace {

struct RingExportTest : testing::Test {
  void SetUp() override { loop = io::UringLoop::create(clock, {.entries = 64}).value(); }
  Status start() {
    FuseOptions options;
    options.mount_point = "/nowhere";
    options.changed = [this] { ++changes; };
    TL_TRY_ASSIGN(
        ring, RingExport::start(*loop, target, std::move(options), std::make_unique<FakeRingKernel>(fake)));
    return {};
  }
  template <class Predicate>
  void run_until(Predicate done) {
    for (int i = 0; i < 3000 && !done(); ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
    ASSERT_TRUE(done());
  }
  void send_write(std::uint64_t tag, std::uint64_t unique) {
    fuse_write_in in{};
    in.offset = 4096 * unique;
    in.size = 4096;
    std::vector<std::byte> data(4096, static_cast<std::byte>(unique));
    fake.request(tag, FUSE_WRITE, unique, in, data);
  }

  OsClock clock;
  FakeRing fake;
  exports::ManualTarget target{1u << 20, false};
  std::unique_ptr<io::UringLoop> loop;
  std::unique_ptr<RingExport> ring;
  unsigned changes = 0;
};

TEST_F(RingExportTest, answers_each_request_once_in_its_entry) {
  ASSERT_TRUE(start());
  send_write(3, 5);
  send_write(70, 6);
  run_until([&] { return target.waiting.size() == 2; });
  EXPECT_EQ(static_cast<void*>(target.waiting[0]->data), fake.payloads.at(3)) << "the data was copied";
  EXPECT_EQ(ring->in_flight(), 2u);
  target.complete_last();
  run_until([&] { return fake.commits.size() == 1; });
  target.complete_first(EIO);
  run_until([&] { return fake.commits.size() == 2; });
  EXPECT_EQ(fake.commits[0].tag, 70u);
  EXPECT_EQ(fake.commits[0].area.commit_id, 6u);
  EXPECT_EQ(fake.commits[0].area.qid, 0u);
  EXPECT_EQ(fake.commits[0].out.unique, 6u);
  EXPECT_EQ(fake.commits[0].out.error, 0);
  fuse_write_out written{};
  ASSERT_EQ(fake.commits[0].payload.size(), sizeof written);
  std::memcpy(&written, fake.commits[0].payload.data(), sizeof written);
  EXPECT_EQ(written.size, 4096u);
  EXPECT_EQ(target.bytes[4096 * 6], std::byte{6});
  EXPECT_EQ(fake.commits[1].area.commit_id, 5u);
  EXPECT_EQ(fake.commits[1].area.qid, 1u);
  EXPECT_EQ(fake.commits[1].out.error, -EIO);
  EXPECT_TRUE(fake.commits[1].payload.empty());
  EXPECT_EQ(ring->counters().requests, 2u);
  EXPECT_EQ(ring->counters().errors, 1u);
  EXPECT_EQ(ring->counters().most_in_flight, 2u);
  // The volume has lost a write.
  fake.request(3, FUSE_FSYNC, 7, fuse_fsync_in{});
  run_until([&] { return fake.commits.size() == 3; });
  EXPECT_EQ(fake.commits[2].out.error, -EIO);
}

TEST_F(RingExportTest, serves_dev_fuse_too) {
  ASSERT_TRUE(start());
  struct {
    fuse_in_header header{};
    fuse_getattr_in in{};
  } message;
  message.header.opcode = FUSE_GETATTR;
  message.header.unique = 9;
  auto bytes = std::as_bytes(std::span(&message, 1));
  fake.send({bytes.begin(), bytes.end()});
  message.header.opcode = FUSE_FORGET;
  fake.send({bytes.begin(), bytes.end()});
  run_until([&] { return fake.replies.size() == 2; });
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  ASSERT_EQ(fake.replies.size(), 2u) << "of FUSE_INIT and FUSE_GETATTR alone";
  EXPECT_EQ(fake.replies[1].size(), sizeof(fuse_out_header) + sizeof(fuse_attr_out));
}

TEST_F(RingExportTest, a_shortage_of_memory_repeats_the_same_reply) {
  ASSERT_TRUE(start());
  send_write(1, 2);
  run_until([&] { return target.waiting.size() == 1; });
  target.complete_first();
  run_until([&] { return fake.commits.size() == 1; });
  fake.complete(1, -ENOMEM);
  run_until([&] { return fake.commits.size() == 2; });
  EXPECT_EQ(fake.commits[1].area.commit_id, 2u);
  EXPECT_EQ(fake.commits[1].payload, fake.commits[0].payload);
  EXPECT_EQ(target.seen.size(), 1u) << "written twice";
  send_write(1, 3);
  run_until([&] { return target.waiting.size() == 1; });
  target.complete_first();
}

TEST_F(RingExportTest, a_refused_reply_ends_the_connection) {
  ASSERT_TRUE(start());
  send_write(1, 2);
  run_until([&] { return target.waiting.size() == 1; });
  target.complete_first();
  run_until([&] { return fake.commits.size() == 1; });
  fake.complete(1, -ENOENT);
  run_until([&] { return !ring->connected() && changes > 0; });
  EXPECT_EQ(fake.aborts, 1u);
}

TEST_F(RingExportTest, a_refused_submission_is_repeated_and_then_ends_the_connection) {
  ASSERT_TRUE(start());
  fake.submit_result = -EBUSY;
  send_write(1, 2);
  run_until([&] { return target.waiting.size() == 1; });
  target.complete_first();
  run_until([&] { return !ring->connected(); });
  EXPECT_EQ(fake.aborts, 1u);
  EXPECT_EQ(fake.commits.size(), 1u);
}

TEST_F(RingExportTest, a_refused_entry_fails_the_start) {
  fake.register_result = -ENOMEM;
  Status started = start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Errc::unavailable);
  EXPECT_EQ(fake.aborts, 1u);
  EXPECT_TRUE(fake.completions.empty()) << "the refusals of the other entries were lost";
}

TEST_F(RingExportTest, a_request_that_ends_after_the_abort_is_not_answered) {
  ASSERT_TRUE(start());
  send_write(1, 2);
  run_until([&] { return target.waiting.size() == 1; });
  bool after = false;
  ring->abort([&after] { after = true; });
  run_until([&] { return !ring->connected(); });
  EXPECT_EQ(ring->in_flight(), 1u);
  target.complete_first();
  EXPECT_EQ(ring->in_flight(), 0u);
  ring.reset();
  EXPECT_TRUE(after);
  EXPECT_TRUE(fake.commits.empty());
  EXPECT_EQ(changes, 0u);
}

TEST_F(RingExportTest, stop_unmounts) {
  ASSERT_TRUE(start());
  std::optional<Status> told;
  ring->stop([&](Status s) { told = std::move(s); });
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(*told);
  ring.reset();
  EXPECT_EQ(fake.aborts, 0u);
}

TEST_F(RingExportTest, the_end_does_not_wait_for_ever_for_the_kernel) {
  ASSERT_TRUE(start());
  fake.returns_entries = false;
  ring.reset();
  EXPECT_GE(fake.aborts, 1u);
}

TEST(RingSize, many_processors_have_few_entries_each) {
  EXPECT_EQ(ring_entries_per_queue(1), 64u);
  EXPECT_EQ(ring_entries_per_queue(2), 64u);
  EXPECT_EQ(ring_entries_per_queue(8), 16u);
  EXPECT_EQ(ring_entries_per_queue(128), 4u);
}

}  // namespace
}  // namespace twinloft::repl::fuse
