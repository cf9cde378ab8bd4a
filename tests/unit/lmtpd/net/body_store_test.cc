#include "body_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>

#include "worker_pool.h"

namespace twinloft::lmtpd {
namespace {

std::string read_all(const MessageBody& body) {
  std::string out(body.size, '\0');
  EXPECT_EQ(::pread(body.file.get(), out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
  return out;
}

TEST(BodyStore, StaysInMemoryUpToItsLimit) {
  MemoryBudget budget(1000);
  BodyLimits limits{10, "/tmp"};
  BodyStore store(limits, budget);
  ASSERT_TRUE(store.append("0123456789"));
  EXPECT_TRUE(store.body().in_memory());
  EXPECT_EQ(store.body().memory, "0123456789");
  EXPECT_EQ(budget.used(), 10u);
}

TEST(BodyStore, GoesToAnUnlinkedFileBeyond) {
  MemoryBudget budget(1000);
  BodyLimits limits{10, "/tmp"};
  BodyStore store(limits, budget);
  ASSERT_TRUE(store.append("01234567"));
  ASSERT_TRUE(store.append("89a"));
  ASSERT_TRUE(store.append("bc"));
  ASSERT_FALSE(store.body().in_memory());
  EXPECT_EQ(store.body().size, 13u);
  EXPECT_EQ(read_all(store.body()), "0123456789abc");
  EXPECT_EQ(budget.used(), 0u);
}

// The limit of all messages and the limit of one message agree for any values: no message is refused that a
// file has room for.
TEST(BodyStore, WithoutMemoryAMessageGoesToAFile) {
  MemoryBudget budget(13);  // a quarter is reserved for recipients
  BodyLimits limits{100, "/tmp"};
  BodyStore first(limits, budget);
  ASSERT_TRUE(first.append("0123456"));
  EXPECT_EQ(budget.used(), 7u);
  {
    BodyStore second(limits, budget);
    ASSERT_TRUE(second.append("012"));
    EXPECT_TRUE(second.body().in_memory());
    EXPECT_EQ(budget.used(), 10u);
    ByteSpan more = as_bytes("3");
    EXPECT_FALSE(second.append_to_memory({&more, 1}));
    ASSERT_TRUE(second.append("3"));
    EXPECT_FALSE(second.body().in_memory());
    EXPECT_EQ(read_all(second.body()), "0123");
    EXPECT_EQ(budget.used(), 7u) << "its memory is free";
    ASSERT_TRUE(second.append("4"));
    EXPECT_EQ(read_all(second.body()), "01234") << "a body in a file stays there";
  }
  EXPECT_EQ(budget.used(), 7u);
}

TEST(BodyStore, AFileHasAChecksumOfAllThatWasWritten) {
  MemoryBudget budget(1000);
  BodyLimits limits{4, "/tmp"};
  BodyStore store(limits, budget);
  ASSERT_TRUE(store.append("123"));
  EXPECT_FALSE(store.body().checksum);
  ASSERT_TRUE(store.append("456"));
  ASSERT_TRUE(store.append("789"));
  EXPECT_EQ(store.body().checksum, 0xe3069283u);
}

TEST(BodyStore, FilesShareABudget) {
  MemoryBudget memory(1000), disk(10);
  BodyLimits limits{2, "/tmp", make_unlinked_file, &disk};
  BodyStore first(limits, memory);
  ASSERT_TRUE(first.append("01"));
  EXPECT_EQ(disk.used(), 0u) << "the body is in memory";
  ASSERT_TRUE(first.append("23456"));
  EXPECT_EQ(disk.used(), 7u);
  {
    BodyStore second(limits, memory);
    ASSERT_TRUE(second.append("012"));
    Status refused = second.append("3");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::exhausted);
    EXPECT_NE(refused.error().message.find("limits.body_disk_total"), std::string::npos);
    EXPECT_EQ(disk.used(), 7u) << "a refused body uses no memory";
  }
  {
    BodyStore third(limits, memory);
    ASSERT_TRUE(third.append("012"));
  }
  EXPECT_EQ(disk.used(), 7u);
  EXPECT_EQ(memory.used(), 0u);
}

TEST(BodyStore, AMissingDirectoryIsNamed) {
  MemoryBudget budget(100);
  BodyLimits limits{1, "/nonexistent"};
  BodyStore store(limits, budget);
  Status failed = store.append("0123456");
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("/nonexistent"), std::string::npos);
}

TEST(WorkerPool, ForgetsWhatItsOwnerDrops) {
  int kept = 0, dropped = 0;
  std::atomic<int> ran{0};
  WorkerPool pool(1);
  std::promise<void> go;
  pool.post([&] { go.get_future().wait(); });
  for (int i = 0; i < 10; ++i) {
    pool.post(&kept, [&] { ++ran; });
    pool.post(&dropped, [&] { ran += 100; });
  }
  pool.drop(&dropped);
  go.set_value();
  pool.finish();
  EXPECT_EQ(ran, 10);
}

TEST(WorkerPool, RunsWhatIsQueuedBeforeItEnds) {
  std::atomic<int> ran{0};
  {
    WorkerPool pool(3);
    for (int i = 0; i < 100; ++i) pool.post([&] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace twinloft::lmtpd
