// Threads for work that blocks: look-ups in databases, deliveries, and writes of large messages.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace twinloft::lmtpd {

class WorkerPool {
 public:
  explicit WorkerPool(std::size_t threads);
  ~WorkerPool() { finish(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Tasks must not throw. They start in the order given.
  void post(std::function<void()> task) { post(nullptr, std::move(task)); }
  void post(const void* owner, std::function<void()> task);
  // Removes the owner's tasks that have not started.
  void drop(const void* owner);
  // Runs the queued tasks, and ends the threads. No post() may follow.
  void finish();

 private:
  struct Task {
    const void* owner;
    std::function<void()> run;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace twinloft::lmtpd
