#include "worker_pool.h"

#include <pthread.h>
#include <signal.h>

namespace twinloft::lmtpd {

WorkerPool::WorkerPool(std::size_t threads) {
  threads_.reserve(threads);
  // Signals are blocked here, so that only other threads get them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void WorkerPool::finish() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerPool::post(const void* owner, std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back({owner, std::move(task)});
  }
  wake_.notify_one();
}

void WorkerPool::drop(const void* owner) {
  std::vector<Task> dropped;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  for (Task& task : tasks_)
    if (task.owner == owner) dropped.push_back(std::move(task));
  std::erase_if(tasks_, [&](const Task& task) { return task.owner == owner; });
}

void WorkerPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task.run();
    task.run = nullptr;  // destroyed while the lock is not held
    lock.lock();
  }
}

}  // namespace twinloft::lmtpd
