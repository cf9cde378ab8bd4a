// A thread beside the owner thread, for calls that block until the owner thread has served requests: mounting
// with FUSE, and configuring a loop device.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::exports {

class SideThread {
 public:
  explicit SideThread(ports::Loop& loop);
  // Completes all work, without calling `done`. Stop or abort the exports first, since work that waits for
  // the owner thread would not end.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // Runs `work` on the side thread, in the order of the calls, then `done` on the loop.
  void run(std::function<void()> work, std::function<void()> done);

 private:
  struct Job {
    std::function<void()> work, done;
  };
  void serve();

  ports::Loop& loop_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // touched on the owner thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // guarded by mutex_
  bool ending_ = false;   // guarded by mutex_
  std::thread thread_;
};

}  // namespace twinloft::repl::exports
