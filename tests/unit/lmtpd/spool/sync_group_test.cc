// Group commit: which syncfs serves a caller, on which descriptor, and which callers get its error.
#include "twinloft/lmtpd/spool/sync_group.h"

#include <atomic>
#include <cerrno>
#include <semaphore>
#include <thread>

#include "../support/fixture.h"

namespace twinloft::lmtpd {
namespace {

// A syncfs that a test can hold, release, and make fail.
class HeldOps : public FileOps {
 public:
  Result<Fd> open_root(const std::string&) override { return Fd(); }
  Result<Fd> open_directory(int, const std::string&) override { return Fd(); }
  Result<Fd> create_file(int, const std::string&) override { return Fd(); }
  Result<Fd> create_unnamed(int) override { return Fd(); }
  Status link_unnamed(int, int, const std::string&) override { return {}; }
  Status write(int, ByteSpan) override { return {}; }
  Status make_directory(int, const std::string&) override { return {}; }
  Status rename(int, const std::string&, int, const std::string&) override { return {}; }
  Status link(int, const std::string&, int, const std::string&) override { return {}; }
  Status unlink(int, const std::string&) override { return {}; }
  Result<bool> append(int, const std::string&, ByteSpan) override { return true; }
  Result<FileAbout> about(int, const std::string&) override { return FileAbout{}; }
  Status replace(int, const std::string&, const std::string&) override { return {}; }
  Result<std::string> read_file(int, const std::string&, std::size_t) override { return std::string(); }
  Status each_entry(int, const std::function<Status(const std::string&)>&) override { return {}; }
  Status sync_file(int) override { return {}; }
  Status write_back(int) override { return {}; }
  Status start_write_back(int) override { return {}; }
  Status check_not_failed(int) override { return {}; }
  Status sync_file_system(int fd) override {
    int number = ++started;
    {
      std::lock_guard lock(mutex);
      descriptors.push_back(fd);
    }
    if (held) allowed.acquire();
    completed = number;
    if (number == failing) return fail_errno(EIO, "syncfs");
    return {};
  }

  std::atomic<int> started{0};
  std::atomic<int> completed{0};
  std::atomic<bool> held{false};
  int failing = 0;
  std::counting_semaphore<> allowed{0};
  std::mutex mutex;
  std::vector<int> descriptors;
};

SpoolHandle handle(std::uint64_t order, std::uint64_t device = 1) {
  SpoolHandle h;
  h.root.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  h.order = order;
  h.device = device;
  return h;
}

void wait_for(const SyncGroup& group, std::uint64_t waiting) {
  while (group.counters().waiting != waiting) std::this_thread::yield();
}

TEST(SyncGroup, ServesAllThatWaitWithOneSyncfs) {
  HeldOps ops;
  ops.held = true;
  ops.failing = 2;
  SyncGroup group(ops);
  SpoolHandle first = handle(1);
  std::thread leader([&] { EXPECT_TRUE(group.sync(first).has_value()); });
  while (ops.started != 1) std::this_thread::yield();

  std::vector<SpoolHandle> handles;
  for (std::uint64_t order : {5, 3, 4}) handles.push_back(handle(order));
  std::vector<std::thread> members;
  std::atomic<int> errors{0};
  for (std::size_t i = 0; i < handles.size(); ++i) {
    members.emplace_back([&, i] { errors += !group.sync(handles[i]).has_value(); });
    wait_for(group, 2 + i);
  }
  EXPECT_EQ(ops.started, 1);  // they wait for a syncfs that starts after their call
  ops.allowed.release(2);
  leader.join();
  for (auto& m : members) m.join();

  EXPECT_EQ(ops.started, 2);
  EXPECT_EQ(errors, 3);                                  // each of them may have lost bytes
  EXPECT_EQ(ops.descriptors[1], handles[1].root.get());  // the oldest: it reports all errors
  EXPECT_EQ(group.counters().members, 4u);
}

// The longest wait is a bound that the test never reaches.
TEST(SyncGroup, WaitsForSoManyCallers) {
  HeldOps ops;
  SyncGroup group(ops);
  const SyncGather three{3, std::chrono::hours(1)};
  std::vector<SpoolHandle> handles;
  for (std::uint64_t order : {2, 1, 3}) handles.push_back(handle(order));
  std::vector<std::thread> members;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    members.emplace_back([&, i] { EXPECT_TRUE(group.sync(handles[i], three)); });
    if (i < 2) {
      wait_for(group, 1 + i);
      EXPECT_EQ(ops.started, 0);
    }
  }
  for (std::thread& member : members) member.join();
  EXPECT_EQ(ops.descriptors, (std::vector<int>{handles[1].root.get()}));  // the oldest
  EXPECT_EQ(group.counters().members, 3u);
}

TEST(SyncGroup, WaitsForCallersNoLongerThanItMay) {
  HeldOps ops;
  SyncGroup group(ops);
  EXPECT_TRUE(group.sync(handle(1), {2, std::chrono::milliseconds(1)}));
  EXPECT_TRUE(group.sync(handle(2), {1, std::chrono::hours(1)}));
  EXPECT_EQ(ops.started, 2);
}

TEST(SyncGroup, NeverServesTwoFileSystemsWithOneSyncfs) {
  HeldOps ops;
  ops.held = true;
  SyncGroup group(ops);
  SpoolHandle first = handle(1), old_mount = handle(2, 1), new_mount = handle(3, 2);
  std::thread leader([&] { EXPECT_TRUE(group.sync(first).has_value()); });
  while (ops.started != 1) std::this_thread::yield();
  std::thread a([&] { EXPECT_TRUE(group.sync(old_mount).has_value()); });
  wait_for(group, 2);
  std::thread b([&] { EXPECT_TRUE(group.sync(new_mount).has_value()); });
  while (ops.started != 2) std::this_thread::yield();
  ops.allowed.release(3);
  for (auto* t : {&leader, &a, &b}) t->join();
  EXPECT_EQ(ops.started, 3);
}

TEST(SyncGroup, ASyncfsThatServesACallerStartsAfterItsCall) {
  HeldOps ops;
  SyncGroup group(ops);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      SpoolHandle mine = handle(static_cast<std::uint64_t>(t) + 1);
      for (int i = 0; i < 2000; ++i) {
        int before = ops.started;
        ASSERT_TRUE(group.sync(mine).has_value());
        ASSERT_GT(ops.completed, before);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(group.counters().members, 16'000u);
  EXPECT_EQ(group.counters().rounds, static_cast<std::uint64_t>(ops.started));
}

}  // namespace
}  // namespace twinloft::lmtpd
