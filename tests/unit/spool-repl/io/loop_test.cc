#include <sys/eventfd.h>

#include <atomic>
#include <optional>
#include <thread>

#include "support.h"

namespace twinloft::repl::io {
namespace {

using ports::Loop;
using std::chrono::milliseconds;

INSTANTIATE_TEST_SUITE_P(Rings, LoopTest, testing::Values(false, true), ring_name);

TEST_P(LoopTest, timers_run_by_deadline_then_by_age) {
  std::string order;
  loop->after(milliseconds(20), [&] { order += 'd'; });
  loop->after(milliseconds(0), [&] { order += 'a'; });
  loop->after(milliseconds(0), [&] { order += 'b'; });
  loop->after(milliseconds(5), [&] { order += 'c'; });
  run_until([&] { return order.size() == 4; });
  EXPECT_EQ(order, "abcd");
}

TEST_P(LoopTest, cancelled_timer_does_not_run_and_cancelling_is_harmless_later) {
  bool ran = false, second = false;
  auto id = loop->after(milliseconds(0), [&] { ran = true; });
  EXPECT_NE(id, 0u);
  loop->cancel(id);
  auto other = loop->after(milliseconds(1), [&] { second = true; });
  run_until([&] { return second; });
  loop->cancel(id);
  loop->cancel(other);
  EXPECT_FALSE(ran);
}

TEST_P(LoopTest, timer_cancels_one_that_is_due_too) {
  bool ran = false, end = false;
  Loop::TimerId victim = 0;
  loop->after(milliseconds(0), [&] { loop->cancel(victim); });
  victim = loop->after(milliseconds(0), [&] { ran = true; });
  loop->after(milliseconds(2), [&] { end = true; });
  run_until([&] { return end; });
  EXPECT_FALSE(ran);
}

TEST_P(LoopTest, timer_set_in_a_timer_waits_for_the_next_turn) {
  int depth = 0, turns = 0, depth_per_turn = 0;
  loop->set_turn_hook([&] { ++turns; });
  std::function<void()> again = [&] {
    ++depth_per_turn;
    if (++depth < 5) loop->after(milliseconds(0), again);
  };
  loop->after(milliseconds(0), again);
  while (depth < 5) {
    depth_per_turn = 0;
    ASSERT_TRUE(loop->turn(milliseconds(1000)));
    EXPECT_LE(depth_per_turn, 1);
  }
  EXPECT_GE(turns, 5);
}

TEST_P(LoopTest, readiness_is_level_triggered) {
  auto [a, b] = make_socketpair();
  ASSERT_EQ(write(b.get(), "abc", 3), 3);
  std::string got;
  loop->watch(a.get(), Loop::readable, [&, fd = a.get()](unsigned ready) {
    EXPECT_EQ(ready, static_cast<unsigned>(Loop::readable));
    char c;
    ASSERT_EQ(read(fd, &c, 1), 1);
    got += c;
  });
  run_until([&] { return got.size() == 3; });
  EXPECT_EQ(got, "abc");
  loop->unwatch(a.get());
}

TEST_P(LoopTest, end_of_file_is_both_kinds_of_ready) {
  auto [a, b] = make_socketpair();
  unsigned seen = 0;
  loop->watch(a.get(), Loop::readable | Loop::writable, [&, fd = a.get()](unsigned ready) {
    seen = ready;
    char c;
    if (read(fd, &c, 1) == 0)
      loop->unwatch(fd);
    else
      seen = 0;
  });
  b.reset();
  run_until([&] { return seen != 0; });
  EXPECT_EQ(seen, unsigned{Loop::readable} | unsigned{Loop::writable});
}

TEST_P(LoopTest, hang_up_wakes_one_who_waits_only_to_write) {
  auto [reader, writer] = make_pipe();
  std::string fill(1 << 20, 'x');
  ASSERT_EQ(fcntl(writer.get(), F_SETFL, O_NONBLOCK), 0);
  while (write(writer.get(), fill.data(), fill.size()) > 0) continue;
  unsigned seen = 0;
  loop->watch(writer.get(), Loop::writable, [&, fd = writer.get()](unsigned ready) {
    seen = ready;
    loop->unwatch(fd);
  });
  ASSERT_TRUE(loop->turn(Duration::zero()));
  EXPECT_EQ(seen, 0u);
  reader.reset();
  run_until([&] { return seen != 0; });
  EXPECT_EQ(seen, unsigned{Loop::writable});
}

TEST_P(LoopTest, handler_removes_its_own_watch_and_watches_the_same_number_again) {
  auto [a, b] = make_socketpair();
  ASSERT_EQ(write(b.get(), "x", 1), 1);
  int first = 0, second = 0;
  int fd = a.get();
  auto marker = std::make_shared<int>(7);
  loop->watch(fd, Loop::readable, [&, marker, fd](unsigned) {
    ++first;
    loop->unwatch(fd);
    EXPECT_EQ(*marker, 7);  // the captures of the running handler outlive its watch
    loop->watch(fd, Loop::readable, [&](unsigned) { ++second; });
  });
  run_until([&] { return second >= 2; });
  EXPECT_EQ(first, 1);
  loop->unwatch(fd);
}

TEST_P(LoopTest, handler_removes_another_watch_that_is_ready_too) {
  auto [a, b] = make_socketpair();
  auto [c, d] = make_socketpair();
  ASSERT_EQ(write(b.get(), "x", 1), 1);
  ASSERT_EQ(write(d.get(), "x", 1), 1);
  int calls = 0;
  int fds[2] = {a.get(), c.get()};
  for (int i = 0; i < 2; ++i)
    loop->watch(fds[i], Loop::readable, [&, i](unsigned) {
      ++calls;
      loop->unwatch(fds[0]);
      loop->unwatch(fds[1]);
      (void)i;
    });
  run_until([&] { return calls > 0; });
  ASSERT_TRUE(loop->turn(Duration::zero()));
  EXPECT_EQ(calls, 1);
}

// The kernel is about to report the descriptor as readable, finds that it is not any more, and would keep
// waiting.
TEST_P(LoopTest, a_watch_goes_although_its_descriptor_was_just_ready_and_read_by_somebody_else) {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ASSERT_TRUE(event);
  loop->watch(event.get(), Loop::readable, [](unsigned) {});
  ASSERT_TRUE(loop->turn(Duration::zero()));
  std::uint64_t count = 1;
  ASSERT_EQ(write(event.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
  ASSERT_EQ(read(event.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
  loop->unwatch(event.get());
  event.reset();
  loop.reset();  // waits until the kernel has released the memory
}

TEST_P(LoopTest, change_widens_narrows_and_silences) {
  auto [a, b] = make_socketpair();
  unsigned seen = 0;
  int calls = 0;
  loop->watch(a.get(), Loop::readable, [&](unsigned ready) {
    seen |= ready;
    ++calls;
  });
  ASSERT_TRUE(loop->turn(Duration::zero()));
  EXPECT_EQ(calls, 0);
  loop->change(a.get(), Loop::readable | Loop::writable);
  run_until([&] { return seen != 0; });
  EXPECT_EQ(seen, unsigned{Loop::writable});
  loop->change(a.get(), 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(loop->turn(Duration::zero()));
  calls = 0;
  ASSERT_EQ(write(b.get(), "x", 1), 1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(loop->turn(Duration::zero()));
  EXPECT_EQ(calls, 0);
  seen = 0;
  loop->change(a.get(), Loop::readable);
  run_until([&] { return seen != 0; });
  EXPECT_EQ(seen, unsigned{Loop::readable});
  loop->unwatch(a.get());
}

TEST_P(LoopTest, unwatched_descriptor_is_let_go_of) {
  auto [a, b] = make_socketpair();
  loop->watch(a.get(), Loop::readable, [](unsigned) { FAIL() << "called after unwatch"; });
  ASSERT_TRUE(loop->turn(Duration::zero()));
  loop->unwatch(a.get());
  a.reset();
  bool closed = false;
  loop->watch(b.get(), Loop::readable, [&, fd = b.get()](unsigned) {
    char c;
    closed = read(fd, &c, 1) == 0;
  });
  run_until([&] { return closed; });
  loop->unwatch(b.get());
}

TEST_P(LoopTest, posts_from_other_threads_run_here_in_order) {
  constexpr int per_thread = 1000;
  std::vector<int> got[2];
  auto here = std::this_thread::get_id();
  auto poster = [&](int which) {
    for (int i = 0; i < per_thread; ++i)
      loop->post([&, which, i] {
        EXPECT_EQ(std::this_thread::get_id(), here);
        got[which].push_back(i);
      });
  };
  std::thread one(poster, 0), two(poster, 1);
  run_until([&] { return got[0].size() + got[1].size() == 2 * per_thread; });
  one.join();
  two.join();
  for (auto& numbers : got)
    for (int i = 0; i < per_thread; ++i) EXPECT_EQ(numbers[static_cast<std::size_t>(i)], i);
}

TEST_P(LoopTest, post_from_a_handler_runs_on_a_later_turn) {
  int turn = 0, posted_at = 0, ran_at = 0;
  loop->set_turn_hook([&] { ++turn; });
  loop->post([&] {
    posted_at = turn;
    loop->post([&] { ran_at = turn; });
  });
  run_until([&] { return ran_at != 0; });
  EXPECT_GT(ran_at, posted_at);
}

TEST_P(LoopTest, stop_ends_run_after_the_turn_and_the_hook_has_the_last_word) {
  std::string log;
  loop->set_turn_hook([&] { log += 'h'; });
  loop->post([&] {
    log += 's';
    loop->stop();
    loop->after(milliseconds(0), [] { FAIL() << "a turn after stop()"; });
  });
  ASSERT_TRUE(loop->run());
  ASSERT_GE(log.size(), 3u);
  EXPECT_EQ(log.front(), 'h');
  EXPECT_EQ(log.substr(log.size() - 2), "sh");
}

TEST_P(LoopTest, loop_made_here_runs_on_another_thread) {
  auto [a, b] = make_socketpair();
  ASSERT_EQ(write(b.get(), "x", 1), 1);
  std::atomic<bool> called = false;
  loop->watch(a.get(), Loop::readable, [&](unsigned) {
    called = true;
    loop->stop();
  });
  std::thread runner([&] {
    auto ran = loop->run();
    EXPECT_TRUE(ran) << ran.error().message;
    loop.reset();
  });
  runner.join();
  EXPECT_TRUE(called);
}

TEST_P(LoopTest, more_watches_than_the_queue_has_entries) {
  auto small = make_loop(clock, GetParam(), 4);
  std::vector<std::pair<Fd, Fd>> pairs;
  std::size_t ready = 0;
  for (int i = 0; i < 50; ++i) {
    pairs.push_back(make_socketpair());
    int fd = pairs.back().first.get();
    small->watch(fd, Loop::readable, [&, fd](unsigned) {
      ++ready;
      small->unwatch(fd);
    });
  }
  for (auto& p : pairs) ASSERT_EQ(write(p.second.get(), "x", 1), 1);
  while (ready < pairs.size()) ASSERT_TRUE(small->turn(milliseconds(1000)));
}

}  // namespace
}  // namespace twinloft::repl::io
