#include "keyed_mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace twinloft::lmtpd {
namespace {

// For any number of names. With a fixed number of mutexes, some names would share the held mutex.
TEST(KeyedMutex, NobodyWaitsForAnotherName) {
  KeyedMutex mutexes;
  KeyedMutex::Lock held = mutexes.lock("ann");
  for (int i = 0; i < 2000; ++i) {
    KeyedMutex::Lock other = mutexes.lock(std::to_string(i));
    EXPECT_EQ(mutexes.in_use(), 2u);
  }
  EXPECT_FALSE(mutexes.try_lock("ann"));
  EXPECT_TRUE(mutexes.try_lock("bob"));
  EXPECT_EQ(mutexes.in_use(), 1u);
}

TEST(KeyedMutex, OneAtATimeOfOneName) {
  KeyedMutex mutexes;
  long counts[3] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5000; ++i) {
        KeyedMutex::Lock lock = mutexes.lock(std::to_string(t % 3));
        ++counts[t % 3];
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (long count : counts) EXPECT_EQ(count, 10'000);
  EXPECT_EQ(mutexes.in_use(), 0u);
}

}  // namespace
}  // namespace twinloft::lmtpd
