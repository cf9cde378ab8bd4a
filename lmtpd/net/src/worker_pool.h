// Threads for what blocks: look-ups in databases, and deliveries.
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
  // Forgets the owner's tasks that have not started.
  void drop(const void* owner);
  // Runs what is queued, and ends the threads. Nothing may be posted any more.
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
