// One thread beside the owner thread, for the few calls that block on what the owner thread serves: mounting
// over FUSE, configuring a loop device.
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
  // Finishes what was given to it; `done` of work that ends after this is not called. To be destroyed only
  // where that work needs nothing more from the owner thread: exports stopped or aborted before.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // Runs `work` on the thread, in the order given, then `done` on the loop.
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
