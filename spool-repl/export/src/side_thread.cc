#include "twinloft/spool-repl/export/side_thread.h"

namespace twinloft::repl::exports {

SideThread::SideThread(ports::Loop& loop) : loop_(loop), thread_([this] { serve(); }) {}

SideThread::~SideThread() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SideThread::run(std::function<void()> work, std::function<void()> done) {
  // Wrapped here, so that alive_ is copied on the owner thread.
  auto guarded = [alive = std::weak_ptr(alive_), done = std::move(done)] {
    if (!alive.expired()) done();
  };
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(work), std::move(guarded)});
  }
  changed_.notify_one();
}

void SideThread::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job.work();
    loop_.post(std::move(job.done));
    lock.lock();
  }
}

}  // namespace twinloft::repl::exports
