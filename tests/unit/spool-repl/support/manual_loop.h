// A loop whose time the test sets. Other threads may post functions, and the test runs them.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl {

class ManualLoop final : public ports::Loop {
 public:
  void watch(int, unsigned, FdHandler) override {}
  void change(int, unsigned) override {}
  void unwatch(int) override {}
  TimerId after(Duration delay, std::function<void()> handler) override {
    timers_.emplace(++last_, std::pair{now_ + delay, std::move(handler)});
    return last_;
  }
  void cancel(TimerId id) override { timers_.erase(id); }
  void post(std::function<void()> handler) override {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(handler));
    arrived_.notify_one();
  }
  Instant now() const override { return now_; }

  std::size_t timers() const { return timers_.size(); }
  // Due timers run in the order of their times, including timers that they set.
  void pass(Duration time) {
    Instant end = now_ + time;
    for (;;) {
      auto next = timers_.end();
      for (auto t = timers_.begin(); t != timers_.end(); ++t)
        if (t->second.first <= end && (next == timers_.end() || t->second.first < next->second.first))
          next = t;
      if (next == timers_.end()) break;
      now_ = std::max(now_, next->second.first);
      auto handler = std::move(next->second.second);
      timers_.erase(next);
      handler();
    }
    now_ = end;
  }
  // As on a machine that has run nothing for this time: due timers run late, and what they set counts from
  // now.
  void stall(Duration time) {
    now_ = now_ + time;
    pass(Duration::zero());
  }
  // Runs what is posted now. Returns whether there was anything.
  bool run_posted() {
    std::unique_lock lock(mutex_);
    std::deque<std::function<void()>> running = std::exchange(posted_, {});
    lock.unlock();
    for (auto& handler : running) handler();
    return !running.empty();
  }
  // Waits until a function is posted, and runs it.
  void run_one() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !posted_.empty(); });
    auto handler = std::move(posted_.front());
    posted_.pop_front();
    lock.unlock();
    handler();
  }

 private:
  Instant now_{1'000'000};
  TimerId last_ = 0;
  std::map<TimerId, std::pair<Instant, std::function<void()>>> timers_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> posted_;
};

}  // namespace twinloft::repl
