#include "timed_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace twinloft::spool_milter {
namespace {

using namespace std::chrono_literals;

constexpr auto long_enough = 60s;  // never waited for
constexpr auto short_time = 50ms;

TimedCalls::Until within(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// Calls what hangs, until a call has begun: on a busy machine a call may be given up before its begin.
void hang(TimedCalls& calls, const std::function<int()>& hanging) {
  for (std::weak_ptr<int> begun; begun.expired();) {
    auto kept = std::make_shared<int>(0);  // destroyed with a call that never begins
    begun = kept;
    auto call = [hanging, kept = std::move(kept)] { return hanging() + *kept; };
    EXPECT_EQ(calls.call<int>(within(short_time), std::move(call)), std::nullopt);
  }
}

TEST(TimedCalls, TheResultOfACall) {
  TimedCalls calls(2);
  EXPECT_EQ(calls.call<int>(within(long_enough), [] { return 7; }), 7);
  EXPECT_EQ(calls.call<std::string>(within(long_enough), [] { return "text"; }), "text");
}

TEST(TimedCalls, ACallThatThrowsHasNoResult) {
  TimedCalls calls(1);
  EXPECT_EQ(calls.call<int>(within(long_enough), []() -> int { throw std::runtime_error("no"); }),
            std::nullopt);
  EXPECT_EQ(calls.call<int>(within(long_enough), [] { return 1; }), 1) << "its thread goes on";
}

TEST(TimedCalls, ACallThatHangsCostsItsTimeAndItsThread) {
  auto release = std::make_shared<std::promise<void>>();
  auto released = release->get_future().share();
  TimedCalls calls(2);
  hang(calls, [released] { return released.wait(), 1; });
  hang(calls, [released] { return released.wait(), 1; });
  auto begun = std::make_shared<std::atomic<bool>>(false);
  EXPECT_EQ(calls.call<int>(within(short_time), [begun] { return *begun = true, 1; }), std::nullopt)
      << "all threads hang";
  release->set_value();
  // With both threads free again, a call has a result.
  std::optional<int> result;
  while (!result) result = calls.call<int>(within(short_time), [] { return 2; });
  EXPECT_EQ(result, 2);
  EXPECT_FALSE(*begun) << "what was given up before its begin never begins";
}

TEST(TimedCalls, NoMoreThanSoManyAtATime) {
  constexpr int callers = 12, threads = 3;
  TimedCalls calls(threads);
  std::atomic<int> now{0}, most{0}, done{0};
  std::vector<std::thread> all;
  for (int i = 0; i < callers; ++i)
    all.emplace_back([&] {
      auto result = calls.call<bool>(within(long_enough), [&] {
        int mine = ++now;
        for (int seen = most; seen < mine && !most.compare_exchange_weak(seen, mine);) continue;
        std::this_thread::sleep_for(1ms);
        --now;
        return true;
      });
      if (result) ++done;
    });
  for (std::thread& thread : all) thread.join();
  EXPECT_EQ(done, callers);
  EXPECT_LE(most, threads);
}

TEST(TimedCalls, AHungCallOutlivesItsOwner) {
  std::promise<void> release;
  auto released = release.get_future().share();
  auto ended = std::make_shared<std::promise<int>>();
  {
    TimedCalls calls(1);
    hang(calls, [released, ended] { return released.wait(), ended->set_value(3), 3; });
  }
  release.set_value();
  EXPECT_EQ(ended->get_future().get(), 3);
}

}  // namespace
}  // namespace twinloft::spool_milter
