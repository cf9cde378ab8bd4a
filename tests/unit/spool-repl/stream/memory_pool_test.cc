#include "twinloft/spool-repl/stream/memory_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace twinloft::repl::stream {
namespace {

constexpr std::uint64_t mib = 1u << 20;

struct MemoryPoolTest : testing::Test {
  std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>(100 * mib);
  std::unique_ptr<MemoryPool::Share> join(std::uint64_t reserve = 4 * mib) {
    return pool->join(reserve).value();
  }
  // What the link can have, in steps of 1 MiB.
  static std::uint64_t fill(MemoryPool::Share& share) {
    while (share.take(mib)) {
    }
    return share.held();
  }
};

TEST_F(MemoryPoolTest, AReserveIsAlwaysThere) {
  auto a = join(), b = join(8 * mib);
  fill(*a);
  a->hold(200 * mib);  // more than there is
  EXPECT_TRUE(b->take(8 * mib));
  EXPECT_FALSE(b->take(1));
  EXPECT_EQ(b->held(), 8 * mib) << "a refusal changes nothing";
  EXPECT_EQ(pool->shared_in_use(), 196 * mib);
}

TEST_F(MemoryPoolTest, ALinkAloneHasFourFifthsOfWhatIsShared) {
  auto a = join();
  EXPECT_EQ(fill(*a), 4 * mib + 76 * mib);  // of 96
  a->hold(3 * mib);
  EXPECT_EQ(pool->shared_in_use(), 0u);
}

// The first has taken most of it. The second finds room, and they end up with about the same.
TEST_F(MemoryPoolTest, LinksThatAreBusyHaveAboutTheSame) {
  auto a = join(), b = join();
  std::uint64_t alone = fill(*a);
  EXPECT_GT(fill(*b), 4 * mib + 10 * mib) << "there is room for a link that wakes up";
  for (int round = 0; round < 200; ++round) {
    for (auto* each : {a.get(), b.get()}) {
      each->hold(each->held() - std::min(each->held(), mib));  // an acknowledgement
      fill(*each);
    }
  }
  EXPECT_LT(a->held(), alone);
  EXPECT_NEAR(static_cast<double>(a->held()), static_cast<double>(b->held()), 10.0 * mib);
  EXPECT_LE(pool->shared_in_use(), 92 * mib);
}

TEST_F(MemoryPoolTest, TheReservesOfAllLinksMustFit) {
  auto a = join(60 * mib);
  auto no = pool->join(41 * mib);
  ASSERT_FALSE(no);
  EXPECT_EQ(no.error().message, "link_memory is 100 MiB, and the links need 101 MiB at least");
  auto b = join(40 * mib);
  EXPECT_FALSE(pool->set_bytes(99 * mib));
  b.reset();
  EXPECT_TRUE(pool->set_bytes(60 * mib));
  EXPECT_FALSE(pool->join(1));
}

TEST_F(MemoryPoolTest, ASmallerPoolGivesNothingUntilItIsEnough) {
  auto a = join(), b = join();
  fill(*a);
  ASSERT_TRUE(pool->set_bytes(20 * mib));
  b->hold(4 * mib);
  EXPECT_FALSE(a->take(1));
  EXPECT_FALSE(b->take(1));
  a->hold(0);
  EXPECT_TRUE(b->take(mib));
  EXPECT_TRUE(pool->set_bytes(100 * mib));
  EXPECT_TRUE(b->take(40 * mib));
}

TEST_F(MemoryPoolTest, ALinkThatEndsGivesEverythingBack) {
  auto a = join();
  fill(*a);
  a.reset();
  EXPECT_EQ(pool->shared_in_use(), 0u);
  EXPECT_TRUE(pool->join(100 * mib));
}

TEST_F(MemoryPoolTest, TheBoundHoldsWithManyThreads) {
  // With fewer links, the part that all share is larger. So all are there from the first take to the last.
  std::vector<std::unique_ptr<MemoryPool::Share>> shares;
  for (int t = 0; t < 4; ++t) shares.push_back(join());
  std::vector<std::thread> threads;
  std::atomic<bool> exceeded{false};
  for (auto& each : shares)
    threads.emplace_back([&, share = each.get()] {
      for (int i = 0; i < 20'000; ++i) {
        if (!share->take(mib / 2)) share->hold(share->held() / 2);
        if (pool->shared_in_use() > 84 * mib) exceeded = true;
      }
    });
  for (auto& t : threads) t.join();
  shares.clear();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(pool->shared_in_use(), 0u);
}

}  // namespace
}  // namespace twinloft::repl::stream
